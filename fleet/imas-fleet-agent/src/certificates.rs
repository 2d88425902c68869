// SPDX-License-Identifier: Apache-2.0
//! An authority of the fleet's own, and the certificates that it signs: one for each server and each host.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use jiff::{Span, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// Days that an authority is valid.
const AUTHORITY_DAYS: i64 = 3650;

/// The authority: who has its key can make hosts and servers.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

/// From and until when a certificate is valid, in days from today.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// The first day; yesterday is -1.
    pub from: i64,
    /// The last day.
    pub until: i64,
}

impl Validity {
    /// Validity from yesterday on, because clocks differ, until this number of days from today.
    #[must_use]
    pub fn days(days: i64) -> Self {
        Self { from: -1, until: days }
    }
}

impl Authority {
    /// The authority in the folder, made where there is none.
    ///
    /// # Errors
    /// When files cannot be read or written, or are no certificate and key.
    pub fn in_folder(folder: &Path) -> Result<Self> {
        let (file, key_file) = (folder.join("ca.pem"), folder.join("ca.key"));
        if !file.exists() {
            make_authority(&file, &key_file)?;
        }
        let read = |file: &Path| fs::read_to_string(file).with_context(|| file.display().to_string());
        let key = KeyPair::from_pem(&read(&key_file)?).with_context(|| key_file.display().to_string())?;
        let issuer =
            Issuer::from_ca_cert_pem(&read(&file)?, key).with_context(|| file.display().to_string())?;
        Ok(Self { issuer, file })
    }

    /// Path of the authority's certificate.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Signs a certificate for these names (DNS names or addresses), and writes it and its key.
    ///
    /// # Errors
    /// When a name cannot be in a certificate, or the files cannot be written.
    pub fn sign(&self, names: &[String], is_server: bool, validity: Validity, to: &Path) -> Result<()> {
        let mut params = params(&names[0], validity, CertificateParams::new(names)?)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if is_server {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        fs::create_dir_all(to).with_context(|| to.display().to_string())?;
        write_secret(&to.join("key.pem"), &key.serialize_pem())?;
        write_open(&to.join("certificate.pem"), &certificate.pem())
    }
}

fn make_authority(file: &Path, key_file: &Path) -> Result<()> {
    let mut params =
        params("IMAS fleet", Validity::days(AUTHORITY_DAYS), CertificateParams::new(Vec::<String>::new())?)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    write_secret(key_file, &key.serialize_pem())?;
    write_open(file, &certificate.pem())
}

fn params(name: &str, validity: Validity, mut params: CertificateParams) -> Result<CertificateParams> {
    let day = |days: i64| -> Result<_> {
        let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
        let date = today.checked_add(Span::new().try_days(days)?)?;
        Ok(date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs()))
    };
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (day(validity.from)?, day(validity.until)?);
    Ok(params)
}

/// Writes a file that others may read.
pub(crate) fn write_open(file: &Path, text: &str) -> Result<()> {
    write(file, text, 0o644)
}

fn write_secret(file: &Path, text: &str) -> Result<()> {
    write(file, text, 0o600)
}

/// Writes a file whole or not at all. It is never readable by more users than its mode allows.
fn write(file: &Path, text: &str, mode: u32) -> Result<()> {
    let unfinished = file.with_extension("new");
    let _ = fs::remove_file(&unfinished); // of a run that was interrupted; opening it fails if it stays
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&unfinished)
        .and_then(|mut opened| opened.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&unfinished, file));
    written.with_context(|| file.display().to_string())
}
