// SPDX-License-Identifier: Apache-2.0
//! A fresh folder for one run, and the variables of its server.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use imas_linux::environment::Variables;

use crate::service::error::ServiceError;
use crate::service::ports::free_ports;

/// The variables that are replaced in a server's words.
pub(crate) const NAMES: [&str; 7] = ["PORT", "PORT2", "PORT3", "PORT4", "WORK", "SETUP", "SERVICE_DIR"];

/// The folder of one run. It is removed on drop.
#[derive(Debug)]
pub(crate) struct Work {
    folder: tempfile::TempDir,
}

impl Work {
    pub(crate) fn new(prefix: &str) -> Result<Self, ServiceError> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir()?;
        // A server that drops its root privileges must still be able to enter the folder.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
            .map_err(ServiceError::file(folder.path()))?;
        Ok(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where a load may write its figures.
    pub(crate) fn metrics(&self) -> PathBuf {
        self.path().join(".imas-metrics")
    }

    /// The inherited variables and the run's own.
    pub(crate) fn variables(
        &self,
        inherited: &Variables,
        setup: Option<&Path>,
    ) -> Result<Variables, ServiceError> {
        let mut variables = inherited.clone();
        for (name, port) in ["PORT", "PORT2", "PORT3", "PORT4"].into_iter().zip(free_ports(4)?) {
            variables.insert(name.into(), OsString::from(port.to_string()));
        }
        variables.insert("WORK".into(), self.path().into());
        variables.insert("IMAS_METRICS".into(), self.metrics().into());
        variables.extend(setup.map(|setup| ("SETUP".into(), setup.into())));
        Ok(variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_the_folder_goes() {
        let work = Work::new("imas-test-").unwrap();
        let variables = work.variables(&Variables::new(), None).unwrap();
        let ports: std::collections::BTreeSet<_> =
            NAMES[..4].iter().map(|name| variables[std::ffi::OsStr::new(name)].clone()).collect();
        assert_eq!(ports.len(), 4);
        let path = work.path().to_owned();
        drop(work);
        assert!(!path.exists());
    }
}
