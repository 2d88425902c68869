// SPDX-License-Identifier: Apache-2.0
//! `imas kube image`: an image with the libraries of the candidates, one layer for each, and a copier for
//! nodes that cannot mount images.
//!
//! An image in the layout of the Open Container Initiative. The same files always give the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use flate2::{Compression, GzBuilder};
use imas_cli::output;
use imas_cli::output_file::{self, NewFile, OutputFolder};
use imas_engine::context::Context;
use imas_engine::lasting;
use imas_linux::catalogue::CatalogueCandidate;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cli::ImageArgs;
use crate::manifests::taken;

/// Program that copies the libraries, beside the other static tools.
const COPIER: &str = "imas-copy";

/// Writes the image.
pub(crate) fn run(args: &ImageArgs, context: &Context) -> Result<()> {
    output_file::check_folder_name(&args.out, "name a folder, or a file that ends in .tar")?;
    let candidates = args.with.iter().map(|name| taken(context, name)).collect::<Result<Vec<_>>>()?;
    let own = Place { copier: &args.copier, lib_dir: &context.lib_dir, other: None };
    let mut builds = vec![build(context, &candidates, &own)?];
    if let Some(other) = &args.also {
        builds.push(build(context, &candidates, &Place { other: Some(other.as_path()), ..own })?);
        if builds[0].architecture == builds[1].architecture {
            bail!("{}: it is for the same architecture, {}", other.display(), builds[0].architecture);
        }
        builds.sort_by_key(|build| build.architecture);
    }
    let files = candidates.iter().flat_map(|one| lasting::files(context, one));
    let labels = json!({
        "org.opencontainers.image.title": "IMAS", "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
        "imas.io/candidates": args.with.join(","), "imas.io/libc": lasting::oldest_libc(&candidates, files),
    });
    let layout = layout(&builds, &format!("/{COPIER}"), &args.tag, &labels)?;
    write(&layout, &args.out).with_context(|| args.out.display().to_string())?;
    let bytes: usize = layout.values().map(Vec::len).sum();
    output::text(&format!(
        "{}: {}, {} layers, {} KiB; to push it: skopeo copy {}{}:{}:{} docker://REGISTRY/imas:1\n",
        args.out.display(),
        builds.iter().map(|build| build.architecture).collect::<Vec<_>>().join(" and "),
        builds[0].layers.len(),
        bytes >> 10,
        if builds.len() > 1 { "--all " } else { "" },
        if is_archive(&args.out) { "oci-archive" } else { "oci" },
        args.out.display(),
        args.tag
    ))
}

/// Where the files of an architecture lie.
#[derive(Clone, Copy)]
struct Place<'a> {
    copier: &'a Path,
    lib_dir: &'a Path,
    /// Folder of what was built for another architecture than this machine's.
    other: Option<&'a Path>,
}

impl Place<'_> {
    /// Reads the file that is there for this one of our own installation.
    fn read(&self, path: &Path) -> Result<ImageFile> {
        let place = match (self.other, path.strip_prefix(self.lib_dir)) {
            (None, _) => path.to_owned(),
            (Some(other), Ok(inside)) => other.join("lib/imas").join(inside),
            (Some(other), Err(_)) if path == self.copier => other.join("sbin").join(COPIER),
            (Some(other), Err(_)) => {
                bail!("{}: no such library is built in {}", path.display(), other.display())
            }
        };
        let bytes = std::fs::read(&place).with_context(|| place.display().to_string())?;
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(ImageFile { name, bytes, is_executable: true })
    }
}

/// The layers of one architecture, which all of their programs have.
fn build(context: &Context, candidates: &[CatalogueCandidate], place: &Place<'_>) -> Result<Build> {
    let layers = layers(context, candidates, place)?;
    let programs = layers.iter().flat_map(|layer| &layer.files).filter(|file| file.is_executable);
    let mut architectures: Vec<_> = programs.map(|file| architecture_of(&file.bytes)).collect();
    architectures.dedup();
    match *architectures {
        [Some(architecture)] => Ok(Build { architecture, layers }),
        _ => bail!("the libraries are not all for amd64, or all for arm64"),
    }
}

/// Layers of the image: one with all that every candidate needs, and one for each library.
fn layers(context: &Context, candidates: &[CatalogueCandidate], place: &Place<'_>) -> Result<Vec<Layer>> {
    let needed = candidates
        .iter()
        .flat_map(|one| lasting::files(context, one).filter(|file| one.library.as_deref() != Some(*file)));
    let ours: BTreeSet<&Path> = needed.chain([context.libraries.guard.as_path(), place.copier]).collect();
    let mut common = ours.into_iter().map(|file| place.read(file)).collect::<Result<Vec<_>>>()?;
    let mut of_libraries: BTreeMap<String, Layer> = BTreeMap::new();
    for candidate in candidates {
        let (Some(file), Some(name)) = (&candidate.library, library_name(candidate)) else { continue };
        if of_libraries.contains_key(&name) {
            continue;
        }
        let notice = text(&format!("LICENCES.{name}"), lasting::licences_of(context, candidate)?);
        let layer = Layer { what: name.clone(), files: vec![notice, place.read(file)?] };
        of_libraries.insert(name, layer);
    }
    let bill = serde_json::to_string_pretty(&bill_of_materials(candidates, &of_libraries, &common))?;
    common.push(text("LICENCE", lasting::OUR_LICENCE.to_owned()));
    common.push(text("imas.spdx.json", bill));
    common.sort_by(|a, b| a.name.cmp(&b.name));
    let first = Layer { what: "guard, pacer, copier".to_owned(), files: common };
    Ok([first].into_iter().chain(of_libraries.into_values()).collect())
}

/// Name of a candidate's library, as `mimalloc2`: one allocator may be there in several.
fn library_name(candidate: &CatalogueCandidate) -> Option<String> {
    let file = candidate.library.as_ref()?.file_stem()?.to_string_lossy();
    Some(file.trim_start_matches("lib").to_owned())
}

fn text(name: &str, content: String) -> ImageFile {
    ImageFile { name: name.to_owned(), bytes: content.into_bytes(), is_executable: false }
}

/// Contents of the image, as SPDX 2.3 writes them: a package for IMAS and for each library of an
/// allocator, a file for each library.
fn bill_of_materials(
    candidates: &[CatalogueCandidate],
    layers: &BTreeMap<String, Layer>,
    common: &[ImageFile],
) -> Value {
    let package = |name: &str, version: &str, licence: &str, origin: &str| {
        json!({
            "SPDXID": spdx_id(name), "name": name, "versionInfo": version, "licenseDeclared": licence,
            "licenseConcluded": licence, "copyrightText": "NOASSERTION", "downloadLocation": "NOASSERTION",
            "filesAnalyzed": false, "sourceInfo": origin,
        })
    };
    let mut packages = vec![package("imas", env!("CARGO_PKG_VERSION"), "Apache-2.0", "this project")];
    for name in layers.keys() {
        let is_it = |one: &&CatalogueCandidate| library_name(one).as_ref() == Some(name);
        let Some(one) = candidates.iter().find(is_it) else { continue };
        packages.push(package(
            name,
            one.version.as_deref().unwrap_or("NOASSERTION"),
            &one.licence,
            &one.origin,
        ));
    }
    let all =
        common.iter().chain(layers.values().flat_map(|layer| &layer.files)).filter(|file| file.is_executable);
    let files: Vec<_> = all
        .map(|file| {
            let digest = digest(&file.bytes);
            json!({
                "SPDXID": spdx_id(&format!("file-{}", file.name)), "fileName": format!("./{}", file.name),
                "checksums": [{ "algorithm": "SHA256", "checksumValue": digest.trim_start_matches("sha256:") }],
                "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION",
            })
        })
        .collect();
    let describes = packages.iter().map(|one| {
        json!({ "spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": one["SPDXID"] })
    });
    let describes: Vec<_> = describes.collect();
    let content = digest(json!([packages, files]).to_string().as_bytes());
    json!({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "imas",
        "documentNamespace": format!("https://example.invalid/imas/spdx/{}", content.trim_start_matches("sha256:")),
        "creationInfo": { "created": "1970-01-01T00:00:00Z", "creators": [format!("Tool: imas-{}", env!("CARGO_PKG_VERSION"))] },
        "packages": packages, "files": files, "relationships": describes,
    })
}

/// A name within a bill of materials: SPDX has letters, digits, dots and hyphens there.
fn spdx_id(name: &str) -> String {
    let good = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '-');
    format!("SPDXRef-{}", name.replace(|sign: char| !good(sign), "-"))
}

fn is_archive(out: &Path) -> bool {
    out.extension().is_some_and(|extension| extension == "tar")
}

fn write(layout: &Layout, out: &Path) -> Result<()> {
    if is_archive(out) {
        return Ok(output_file::write(out, &archive(layout)?)?);
    }
    for folder in ["", "blobs/sha256"] {
        let here = OutputFolder::make(&out.join(folder))?;
        let inside = layout.iter().filter_map(|(path, bytes)| {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            (parent == folder).then(|| NewFile { name: OsStr::new(name), bytes, mode: None })
        });
        here.write_all(&inside.collect::<Vec<_>>())?;
    }
    Ok(())
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Time of everything in the image: the epoch.
const CREATED: &str = "1970-01-01T00:00:00Z";
/// User of the copier: nobody in particular, and not root.
const USER: &str = "65532:65532";

/// A file of the image, at its root.
#[derive(Debug)]
pub(super) struct ImageFile {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    pub(super) is_executable: bool,
}

/// A layer with what it is for.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) what: String,
    pub(super) files: Vec<ImageFile>,
}

/// Layers of an image for one architecture, by the name that images use for it.
#[derive(Debug)]
pub(super) struct Build {
    pub(super) architecture: &'static str,
    pub(super) layers: Vec<Layer>,
}

/// The files of the layout by their paths.
pub(super) type Layout = BTreeMap<String, Vec<u8>>;

/// Puts the image together: with several architectures an index of them, from which each node takes its own. `tag` is
/// its name in the layout.
fn layout(builds: &[Build], entry_point: &str, tag: &str, labels: &Value) -> Result<Layout> {
    let mut files = Layout::new();
    let manifests = builds.iter().map(|build| manifest(&mut files, build, entry_point, labels));
    let manifests = manifests.collect::<Result<Vec<_>>>()?;
    let mut named = match manifests.as_slice() {
        [only] => only.clone(),
        several => add(&mut files, INDEX, index(several)?),
    };
    named["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
    files.insert("index.json".to_owned(), index(&[named])?);
    files.insert("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
    Ok(files)
}

fn index(manifests: &[Value]) -> Result<Vec<u8>> {
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    Ok(serde_json::to_vec(&index)?)
}

/// Adds what one architecture needs, and answers the descriptor of its manifest.
fn manifest(files: &mut Layout, build: &Build, entry_point: &str, labels: &Value) -> Result<Value> {
    let (mut packed, mut plain, mut history) = (vec![], vec![], vec![]);
    for layer in &build.layers {
        let tar = tar_of(layer)?;
        plain.push(digest(&tar));
        packed.push(add(files, LAYER, gzip(&tar)?));
        history.push(json!({ "created": CREATED, "created_by": "imas kube image", "comment": layer.what }));
    }
    let config = json!({
        "created": CREATED, "architecture": build.architecture, "os": "linux",
        "config": { "User": USER, "Entrypoint": [entry_point], "WorkingDir": "/", "Labels": labels },
        "rootfs": { "type": "layers", "diff_ids": plain },
        "history": history,
    });
    let config = add(files, CONFIG, serde_json::to_vec(&config)?);
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": packed });
    let mut manifest = add(files, MANIFEST, serde_json::to_vec(&manifest)?);
    manifest["platform"] = json!({ "architecture": build.architecture, "os": "linux" });
    Ok(manifest)
}

/// The layout in one archive.
pub(super) fn archive(layout: &Layout) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(vec![]);
    for folder in ["blobs/", "blobs/sha256/"] {
        append(&mut tar, folder, &[], 0o755, tar::EntryType::Directory)?;
    }
    for (path, bytes) in layout {
        append(&mut tar, path, bytes, 0o644, tar::EntryType::Regular)?;
    }
    Ok(tar.into_inner()?)
}

/// The machine for which an ELF file is, as images name it; None for other files, and for other machines.
fn architecture_of(file: &[u8]) -> Option<&'static str> {
    match (file.get(..4)?, file.get(18..20)?) {
        (b"\x7fELF", [62, 0]) => Some("amd64"),
        (b"\x7fELF", [183, 0]) => Some("arm64"),
        _ => None,
    }
}

/// Adds a blob and answers its descriptor.
fn add(files: &mut Layout, media_type: &str, bytes: Vec<u8>) -> Value {
    let digest = digest(&bytes);
    let descriptor = json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() });
    files.insert(format!("blobs/{}", digest.replace(':', "/")), bytes);
    descriptor
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn tar_of(layer: &Layer) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(vec![]);
    for file in &layer.files {
        let mode = if file.is_executable { 0o755 } else { 0o644 };
        append(&mut tar, &file.name, &file.bytes, mode, tar::EntryType::Regular)?;
    }
    Ok(tar.into_inner()?)
}

fn append(
    tar: &mut tar::Builder<Vec<u8>>,
    path: &str,
    bytes: &[u8],
    mode: u32,
    kind: tar::EntryType,
) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    tar.append_data(&mut header, path, bytes).with_context(|| path.to_owned())
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzBuilder::new().mtime(0).write(vec![], Compression::best());
    packed.write_all(bytes)?;
    Ok(packed.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_any_library_can_be_in_a_bill_of_materials() {
        assert_eq!(spdx_id("file-libtcmalloc_minimal++.so.4"), "SPDXRef-file-libtcmalloc-minimal--.so.4");
    }

    #[test]
    fn two_versions_of_an_allocator_are_two_libraries() {
        let of = |library: &str| {
            library_name(&CatalogueCandidate {
                allocator: "mimalloc".into(),
                library: Some(library.into()),
                ..CatalogueCandidate::default()
            })
        };
        assert_eq!(of("/l/libmimalloc.so").as_deref(), Some("mimalloc"));
        assert_eq!(of("/l/libmimalloc2.so").as_deref(), Some("mimalloc2"));
        assert_eq!(library_name(&CatalogueCandidate::default()), None);
    }

    fn image() -> Layout {
        let file = ImageFile { name: "a.so".into(), bytes: b"abc".to_vec(), is_executable: true };
        layout(&[build("amd64", vec![file])], "/copy", "imas", &json!({})).unwrap()
    }

    fn build(architecture: &'static str, files: Vec<ImageFile>) -> Build {
        Build { architecture, layers: vec![Layer { what: "a".into(), files }] }
    }

    #[test]
    fn two_architectures_have_one_name() {
        let both = layout(&[build("amd64", vec![]), build("arm64", vec![])], "/copy", "imas", &json!({}));
        let both = both.unwrap();
        let read = |path: &str| serde_json::from_slice::<Value>(&both[path]).unwrap();
        let outer = read("index.json");
        assert_eq!(outer["manifests"].as_array().unwrap().len(), 1);
        let inner = outer["manifests"][0]["digest"].as_str().unwrap().replace(':', "/");
        let inner = read(&format!("blobs/{inner}"));
        let of = |at: usize| inner["manifests"][at]["platform"]["architecture"].clone();
        assert_eq!((of(0), of(1), of(2)), (json!("amd64"), json!("arm64"), json!(null)));
    }

    #[test]
    fn the_machine_of_a_file_is_in_its_head() {
        let head = |machine: u8| [b"\x7fELF".as_slice(), &[0; 14], &[machine, 0]].concat();
        assert_eq!((architecture_of(&head(62)), architecture_of(&head(183))), (Some("amd64"), Some("arm64")));
        assert_eq!((architecture_of(&head(3)), architecture_of(b"\x7fELF")), (None, None));
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        assert_eq!(archive(&image()).unwrap(), archive(&image()).unwrap());
    }

    #[test]
    fn each_blob_has_its_digest_as_its_name() {
        let image = image();
        let blobs: Vec<_> = image
            .iter()
            .filter_map(|(path, bytes)| Some((path.strip_prefix("blobs/sha256/")?, bytes)))
            .collect();
        assert_eq!(blobs.len(), 3);
        assert!(blobs.iter().all(|(name, bytes)| digest(bytes) == format!("sha256:{name}")));
    }
}
