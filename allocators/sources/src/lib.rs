//! Empty: this package exists for its Cargo.lock only.
