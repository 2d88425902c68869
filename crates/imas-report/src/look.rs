// SPDX-License-Identifier: Apache-2.0
//! One look for each allocator, on every chart of every page.
//!
//! The family gives the colour: `jemalloc`, `jemalloc:small` and `distro-jemalloc` are the same orange. The
//! variant gives the shape of the dot and the dashes of the line, so that no one has to distinguish two
//! colours to read a chart. The colours themselves are variables of `chart/colours.css`, in a light and a
//! dark set.

/// Families with a colour of their own; a name belongs to the first one whose word it contains.
const FAMILIES: [(&str, &str); 19] = [
    ("imas", "imas"),
    ("tcmalloc-google", "tcmalloc"),
    ("system", "system"),
    ("glibc", "system"),
    ("jemalloc", "jemalloc"),
    ("mimalloc", "mimalloc"),
    ("tcmalloc", "tcmalloc"),
    ("snmalloc", "snmalloc"),
    ("hoard", "hoard"),
    ("nedmalloc", "nedmalloc"),
    ("dlmalloc", "dlmalloc"),
    ("musl", "musl"),
    ("tlsf", "tlsf"),
    ("tbb", "tbb"),
    ("rpmalloc", "rpmalloc"),
    ("scudo", "scudo"),
    ("hardened", "hardened"),
    ("fit-", "fit"),
    ("headers", "fit"),
];
const OTHER: &str = "other";

/// The variants of the catalogue, so that each keeps its shape when another is added.
const VARIANTS: [(&str, usize); 26] = [
    ("glibc:arena1", 1),
    ("glibc:arena2", 2),
    ("glibc:lean", 3),
    ("glibc:keep", 4),
    ("glibc:thp", 5),
    ("distro-jemalloc", 1),
    ("jemalloc:cpu", 2),
    ("jemalloc:mem", 3),
    ("jemalloc:small", 4),
    ("distro-tcmalloc", 1),
    ("tcmalloc:bigcache", 2),
    ("tcmalloc:decommit", 3),
    ("tcmalloc-google", 4),
    ("distro-mimalloc", 1),
    ("mimalloc:purge0", 2),
    ("mimalloc:keep", 3),
    ("mimalloc:large", 4),
    ("mimalloc2", 5),
    ("mimalloc2:small", 2),
    ("mimalloc2:tight", 4),
    ("musl-oldmalloc", 1),
    ("hardened:light", 1),
    ("distro-tbb", 1),
    ("fit-next", 1),
    ("fit-best", 2),
    ("fit-worst", 3),
];

/// Shapes and dashes that variants have.
pub(crate) const SHAPES: usize = 6;

/// Colour, shape and dashes of one allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Name of the colour variable, without the dashes before it.
    pub(crate) family: &'static str,
    /// 0 is the plain allocator: a circle and an unbroken line.
    pub(crate) variant: usize,
}

impl Look {
    /// The look of the allocator, candidate or policy of that name.
    pub(crate) fn of(name: &str) -> Self {
        let lower = name.to_ascii_lowercase();
        let family =
            FAMILIES.iter().find(|(word, _)| lower.contains(word)).map_or(OTHER, |(_, family)| family);
        let known = VARIANTS.iter().find(|(variant, _)| *variant == lower).map(|(_, shape)| *shape);
        let is_plain = !lower.contains([':', '?']);
        let variant = known.unwrap_or_else(|| if is_plain { 0 } else { 1 + hash(&lower) % (SHAPES - 1) });
        Self { family, variant }
    }

    /// Whether the name belongs to a family that has a colour of its own.
    pub(crate) fn is_known(self) -> bool {
        self.family != OTHER
    }

    /// A look for each of the names of one chart: those that would look the same get other shapes and dashes.
    pub(crate) fn of_all<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Self> {
        let mut looks: Vec<Self> = vec![];
        for name in names {
            let first = Self::of(name);
            let others = (1..SHAPES).map(|next| Self { variant: (first.variant + next) % SHAPES, ..first });
            let free = |look: &Self| !looks.contains(look);
            looks.push(std::iter::once(first).chain(others).find(free).unwrap_or(first));
        }
        looks
    }

    /// The class that sets the colour `--c`. No `style` attribute: a served page forbids them.
    pub(crate) fn class(self) -> String {
        format!("c-{}", self.family)
    }

    /// `stroke-dasharray` of its lines.
    pub(crate) fn dashes(self) -> &'static str {
        ["none", "7 3", "2 3", "10 3 2 3", "5 5", "1 4"][self.variant % SHAPES]
    }

    /// An SVG path of its dot around (0, 0), 5 pixels to each side.
    pub(crate) fn dot(self) -> &'static str {
        [
            "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z",
            "M-4.5 -4.5H4.5V4.5H-4.5Z",
            "M0 -6.2L6.2 0L0 6.2L-6.2 0Z",
            "M0 -5.8L5.8 4.4H-5.8Z",
            "M0 5.8L5.8 -4.4H-5.8Z",
            "M-2 -6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
        ][self.variant % SHAPES]
    }
}

/// Hash of a name (FNV-1a): equal for equal names on every machine.
fn hash(name: &str) -> usize {
    let hashed =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hashed >> 16) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOURS: &str = include_str!("chart/colours.css");
    /// The families that meet on the charts of the results.
    const COMMON: [&str; 9] =
        ["imas", "system", "jemalloc", "mimalloc", "tcmalloc", "snmalloc", "hoard", "dlmalloc", "musl"];

    #[test]
    fn a_family_has_one_colour_and_its_variants_differ_in_shape() {
        let family = |name| Look::of(name).family;
        assert_eq!(
            [family("jemalloc"), family("distro-jemalloc"), family("jemalloc:small")],
            ["jemalloc"; 3]
        );
        assert_eq!([family("system"), family("glibc:arena2")], ["system"; 2]);
        assert_eq!(
            [family("mimalloc2:tight"), family("tcmalloc-google"), family("nedmalloc")],
            ["mimalloc", "tcmalloc", "nedmalloc"]
        );
        assert_eq!(family("something new"), "other");
        assert_eq!(Look::of("jemalloc").variant, 0);
        for (at, (one, shape)) in VARIANTS.iter().enumerate() {
            assert!((1..SHAPES).contains(shape), "{one}");
            let same = |(name, _): &&(&str, usize)| Look::of(name) == Look::of(one);
            let twins: Vec<&str> = VARIANTS[at + 1..].iter().filter(same).map(|(name, _)| *name).collect();
            // Six shapes for seven variants of mimalloc: those that share one are of two major versions.
            assert!(twins.iter().all(|twin| twin.starts_with("mimalloc2:")), "{one}: {twins:?}");
        }
        assert_ne!(Look::of("jemalloc?narenas=1").variant, 0);
        let both = Look::of_all(["24-byte headers", "8-byte headers"].into_iter());
        assert_ne!(both[0], both[1]);
    }

    /// Red, green and blue, 0 to 1 and linear, of `--NAME: #rrggbb` in the light (0) or dark (1) set.
    fn colour(name: &str, set: usize) -> [f64; 3] {
        let wanted = format!("--{name}: #");
        let at =
            COLOURS.match_indices(&wanted).nth(set).unwrap_or_else(|| panic!("no {name} in set {set}")).0;
        let digits = &COLOURS[at + wanted.len()..][..6];
        [0, 2, 4].map(|i| {
            let value = f64::from(u8::from_str_radix(&digits[i..i + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn luminance([red, green, blue]: [f64; 3]) -> f64 {
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    #[test]
    fn every_family_has_its_class() {
        for family in FAMILIES.iter().map(|(_, family)| *family).chain([OTHER, "ink"]) {
            assert!(COLOURS.contains(&format!(".c-{family} {{ --c: var(--{family}); }}")), "{family}");
        }
    }

    #[test]
    fn every_colour_stands_out_from_the_paper() {
        let families = FAMILIES.iter().map(|(_, family)| *family).chain([OTHER, "ink"]);
        for family in families {
            for set in [0, 1] {
                let (one, paper) = (luminance(colour(family, set)), luminance(colour("paper", set)));
                let contrast = (one.max(paper) + 0.05) / (one.min(paper) + 0.05);
                assert!(contrast >= 3.0, "{family} in set {set}: {contrast:.2}");
            }
        }
    }

    type Matrix = [[f64; 3]; 3];
    /// Colours as people see them: all of them, without red, without green and without blue receptors
    /// (Machado, Oliveira and Fernandes 2009).
    const SEEN: [Matrix; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
    ];
    const TO_CONES: Matrix = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ];
    const TO_OKLAB: Matrix = [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ];

    fn times(matrix: &Matrix, vector: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
    }

    #[test]
    fn the_common_families_differ_for_colour_blind_people_too() {
        for (set, seen) in [0, 1].into_iter().flat_map(|set| SEEN.iter().map(move |seen| (set, seen))) {
            let place = |name: &str| {
                let cones = times(&TO_CONES, times(seen, colour(name, set)).map(|c| c.clamp(0.0, 1.0)));
                times(&TO_OKLAB, cones.map(f64::cbrt))
            };
            for (i, one) in COMMON.iter().enumerate() {
                for other in &COMMON[i + 1..] {
                    let squares = place(one).into_iter().zip(place(other)).map(|(a, b)| (a - b).powi(2));
                    let distance = squares.sum::<f64>().sqrt();
                    assert!(distance > 0.07, "{one} and {other} in set {set}: {distance:.3}");
                }
            }
        }
    }
}
