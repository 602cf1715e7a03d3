//! How large policies come out; `cargo test -- --nocapture sizes` shows it.

use std::time::Instant;

use super::*;

fn container() -> View {
    view(vec![
        mount(1, "overlay", "/", "/"),
        mount(2, "proc", "/", "/proc"),
        mount(3, "sysfs", "/", "/sys"),
        mount(4, "tmpfs", "/", "/dev"),
        mount(5, "tmpfs", "/", "/tmp"),
        mount(
            6,
            "ext4",
            "/var/lib/containers/1/resolv.conf",
            "/etc/resolv.conf",
        ),
        mount(6, "ext4", "/var/lib/containers/1/hosts", "/etc/hosts"),
        mount(6, "ext4", "/home/user/project", "/workspace"),
        mount(2, "proc", "/sys", "/proc/sys"),
    ])
}

fn many(count: usize, verdicts: &[Verdict], source: impl Fn(usize) -> String) -> RuleSet {
    let all = (0..count)
        .map(|i| {
            let access = [Access::FILE, Access::READ, Access::WRITE][i % 3];
            (verdicts[i % verdicts.len()], file(access, &[&source(i)]))
        })
        .collect();
    rules(Defaults::default(), all)
}

fn few() -> RuleSet {
    let mut all: Vec<(Verdict, Subject)> = [
        "/home/user/.ssh/**",
        "/home/user/.aws/**",
        "/home/user/.gnupg/**",
        "/**/.env",
        "/**/.git/config",
        "/etc/shadow",
        "/proc/kcore",
    ]
    .iter()
    .map(|source| (Verdict::Deny, file(Access::FILE, &[source])))
    .collect();
    let open = ["/usr/**", "/lib/**", "/etc/**", "/proc/**", "/dev/**"];
    all.extend(
        open.iter()
            .map(|source| (Verdict::Allow, file(Access::READ, &[source]))),
    );
    all.extend(
        ["/workspace/**", "/tmp/**"]
            .iter()
            .map(|source| (Verdict::Allow, file(Access::FILE, &[source]))),
    );
    all.push((Verdict::Audit, exec(&["/usr/bin/*sudo*"])));
    all.push((Verdict::Deny, exec(&["/tmp/**"])));
    rules(Defaults::default(), all)
}

fn report(what: &str, rules: &RuleSet) {
    let begin = Instant::now();
    let tables = compile(rules, &container(), Limits::default());
    let took = begin.elapsed();
    match tables {
        Ok(tables) => println!("{what}: {:?} in {took:?}", tables.stats),
        Err(error) => panic!("{what}: {error} after {took:?}"),
    }
}

#[test]
fn sizes_stay_within_the_limits_for_a_thousand_rules_of_any_kind() {
    use Verdict::{Allow, Audit, Deny};
    let mixed = &[Allow, Deny, Audit][..];
    report("16 rules", &few());
    for (verdicts, kind) in [(&[Deny][..], "one verdict"), (mixed, "mixed")] {
        report(
            &format!("1,000 directories, {kind}"),
            &many(1000, verdicts, |i| {
                format!("/home/user{}/project-{i:04}/src/**", i % 7)
            }),
        );
        report(
            &format!("1,000 files in unlike directories, {kind}"),
            &many(1000, verdicts, |i| {
                format!("/{:x}/file-{i}.txt", i.wrapping_mul(0x9e37_79b9_7f4a))
            }),
        );
        report(
            &format!("1,000 /**/nameN/**, {kind}"),
            &many(1000, verdicts, |i| format!("/**/name{i}/**")),
        );
        report(
            &format!("1,000 /**/*.extN, {kind}"),
            &many(1000, verdicts, |i| format!("/**/*.ext{i}")),
        );
        report(
            &format!("1,000 /home/*/nameN/**, {kind}"),
            &many(1000, verdicts, |i| format!("/home/*/name{i}/**")),
        );
        report(
            &format!("1,000 /dirN/**/target/**, {kind}"),
            &many(1000, verdicts, |i| format!("/dir{i}/**/target/**")),
        );
    }
    let peers = (0..1000)
        .map(|i| {
            let prefix = crate::rules::peer::IpPrefix {
                address: std::net::Ipv4Addr::from_bits(0x0a00_0000 + (i << 8)).into(),
                length: 24,
            };
            (Deny, connect(vec![Peer::Ip(prefix)]))
        })
        .collect();
    report("1,000 networks", &rules(Defaults::default(), peers));
}
