//! From where a file is to the names it has in the sandbox's view.

use crate::{
    event::Place,
    tables::pseudo_type,
    view::{Mount, View},
};

/// Every name of a place in a view: one for each mount that shows it, the likeliest first (the mount
/// that shows least besides it). Empty for what has no name there.
#[must_use]
pub(super) fn names(view: &View, place: &Place) -> Vec<Vec<u8>> {
    if place.partial {
        return Vec::new();
    }
    let pseudo = pseudo_type(place.magic);
    let mut found: Vec<(&Mount, Vec<u8>)> = view
        .mounts
        .iter()
        .rev()
        .filter(|mount| {
            mount.dev == place.dev || pseudo.is_some_and(|(fs_type, _)| mount.fs_type == fs_type)
        })
        .filter_map(|mount| Some((mount, name_through(mount, &place.path)?)))
        .collect();
    found.sort_by_key(|(mount, _)| std::cmp::Reverse(mount.root.len()));
    let mut names: Vec<Vec<u8>> = found.into_iter().map(|(_, name)| name).collect();
    if names.is_empty()
        && let Some((_, point)) = pseudo
    {
        // Not mounted in the view: the tables take its customary place.
        names.push(
            [
                point.as_bytes(),
                if place.path == b"/" { b"" } else { &place.path },
            ]
            .concat(),
        );
    }
    names
}

/// The name of `path` (below the superblock's root) through one mount.
fn name_through(mount: &Mount, path: &[u8]) -> Option<Vec<u8>> {
    let below = match mount.root.as_slice() {
        b"/" => path,
        root => match path.strip_prefix(root)? {
            rest @ ([] | [b'/', ..]) => rest,
            _ => return None,
        },
    };
    let below = if below == b"/" { b"" } else { below };
    let point = if mount.point == b"/" {
        b""
    } else {
        mount.point.as_slice()
    };
    let name = [point, below].concat();
    Some(if name.is_empty() { b"/".to_vec() } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Dev;

    fn mount(dev: u32, root: &str, point: &str) -> Mount {
        Mount {
            dev: Dev::new(dev, 0),
            fs_type: "ext4".to_owned(),
            root: root.into(),
            point: point.into(),
        }
    }

    fn place(dev: u32, path: &str) -> Place {
        Place {
            dev: Dev::new(dev, 0),
            magic: 0,
            path: path.into(),
            partial: false,
            inode: 1,
            mode: 0,
        }
    }

    #[test]
    fn a_file_below_a_bind_mount_has_two_names() {
        let view = View {
            mounts: vec![mount(8, "/", "/"), mount(8, "/srv/a", "/mnt")],
            ..View::default()
        };
        assert_eq!(
            names(&view, &place(8, "/srv/a/b")),
            [b"/mnt/b".to_vec(), b"/srv/a/b".to_vec()]
        );
        assert_eq!(names(&view, &place(8, "/srv/ab")), [b"/srv/ab".to_vec()]);
        assert_eq!(names(&view, &place(8, "/srv/a"))[0], b"/mnt");
    }

    #[test]
    fn a_superblock_that_is_not_mounted_gives_no_name() {
        let view = View {
            mounts: vec![mount(8, "/", "/")],
            ..View::default()
        };
        assert!(names(&view, &place(9, "/x")).is_empty());
    }

    #[test]
    fn the_root_is_a_slash() {
        let view = View {
            mounts: vec![mount(8, "/", "/")],
            ..View::default()
        };
        assert_eq!(names(&view, &place(8, "/")), [b"/".to_vec()]);
    }
}
