//! The IPv6 forms of IPv4 addresses. [`super::IpPrefix::embeddings`] names their sources.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Leading 96 bits of the forms that end in the IPv4 address, compatible ones apart.
const SUFFIXED: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0),
    Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0),
    Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0),
];
/// Leading 16 bits of 6to4 addresses.
const SIX_TO_FOUR: Ipv6Addr = Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0);

/// The IPv4 addresses that `address` stands for: at most one of each form.
pub(super) fn embedded(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let bits = address.to_bits();
    let suffix = low_half(bits);
    let suffixed = SUFFIXED
        .iter()
        .any(|form| form.to_bits() >> 32 == bits >> 32)
        .then_some(suffix);
    // `::` and `::1` are themselves.
    let compatible = (bits >> 32 == 0 && bits > 1).then_some(suffix);
    let six_to_four = (bits >> 112 == SIX_TO_FOUR.to_bits() >> 112).then_some(low_half(bits >> 80));
    suffixed
        .into_iter()
        .chain(compatible)
        .chain(six_to_four)
        .map(Ipv4Addr::from_bits)
}

/// The prefixes of every form of an IPv4 prefix.
pub(super) fn prefixes(address: Ipv4Addr, length: u8) -> Vec<(Ipv6Addr, u8)> {
    let bits = u128::from(address.to_bits());
    let mut prefixes: Vec<_> = SUFFIXED
        .iter()
        .map(|form| (Ipv6Addr::from_bits(form.to_bits() | bits), 96 + length))
        .collect();
    prefixes.push((
        Ipv6Addr::from_bits(SIX_TO_FOUR.to_bits() | bits << 80),
        16 + length,
    ));
    if bits > 1 {
        prefixes.push((Ipv6Addr::from_bits(bits), 96 + length));
    } else {
        // The block starts at `::`: all of it but `::/127`, as the upper halves of ever smaller blocks.
        prefixes.extend(
            (96 + length + 1..=127)
                .map(|length| (Ipv6Addr::from_bits(1 << (128 - length)), length)),
        );
    }
    prefixes
}

fn low_half(bits: u128) -> u32 {
    let [.., a, b, c, d] = bits.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}
