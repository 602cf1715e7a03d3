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
            (
                verdicts[i / 3 % verdicts.len()],
                file(access, &[&source(i)]),
            )
        })
        .collect();
    rules(Defaults::default(), all)
}

/// Names that have nothing in common.
fn name(i: usize) -> String {
    let mut bits = u32::try_from(i).unwrap() + 1;
    (0..6 + i % 8)
        .map(|_| {
            // The constants of Numerical Recipes' generator.
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + bits.to_be_bytes()[0] % 26)
        })
        .collect()
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
        let report = |what: &str, source: &dyn Fn(usize) -> String| {
            report(
                &format!("1,000 {what}, {kind}"),
                &many(1000, verdicts, source),
            );
        };
        report("/home/userN/project-N/src/**", &|i| {
            format!("/home/user{}/project-{i:04}/src/**", i % 7)
        });
        report("/NAME/NAME/NAME", &|i| {
            format!("/{}/{}/{}", name(i % 50), name(i), name(i + 1000))
        });
        report("/home/*/NAME/**", &|i| format!("/home/*/{}/**", name(i)));
        report("/**/nameN/**", &|i| format!("/**/name{i}/**"));
        report("/**/*.extN", &|i| format!("/**/*.ext{i}"));
        report("/**/*.NAME", &|i| format!("/**/*.{}", name(i)));
        report("/NAME/**/target/**", &|i| {
            format!("/{}/**/target/**", name(i))
        });
    }
    // Which of these have matched has to be remembered at every place in every name, so that sizes
    // multiply: the price is paid for each combination of what they can say.
    let sticky = |i| format!("/**/{}/**", name(i));
    report(
        "1,000 /**/NAME/**, one verdict",
        &many(1000, &[Deny], sticky),
    );
    report("50 /**/NAME/**, mixed", &many(50, mixed, sticky));
    let limits = Limits {
        building_cells: 1 << 20,
        ..Limits::default()
    };
    assert!(compile(&many(1000, mixed, sticky), &container(), limits).is_err());
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
