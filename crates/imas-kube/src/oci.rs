// SPDX-License-Identifier: Apache-2.0
//! An image in the layout of the Open Container Initiative. The same files always give the same bytes.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

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
pub(crate) struct ImageFile {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_executable: bool,
}

/// A layer with what it is for.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) what: String,
    pub(crate) files: Vec<ImageFile>,
}

/// What an image has for one architecture, by the name that images use.
#[derive(Debug)]
pub(crate) struct Build {
    pub(crate) architecture: &'static str,
    pub(crate) layers: Vec<Layer>,
}

/// The files of the layout by their paths.
pub(crate) type Layout = BTreeMap<String, Vec<u8>>;

/// Puts the image together: with several architectures an index of them, from which each node takes its own. `tag` is
/// its name in the layout.
pub(crate) fn layout(builds: &[Build], entry_point: &str, tag: &str, labels: &Value) -> Result<Layout> {
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
pub(crate) fn archive(layout: &Layout) -> Result<Vec<u8>> {
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
pub(crate) fn architecture_of(file: &[u8]) -> Option<&'static str> {
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

pub(crate) fn digest(bytes: &[u8]) -> String {
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
