# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# fetch_source prints the folder of a recipe's sources. Nothing may write into it.

# fetch_source crate:NAME | debian:PACKAGE=VERSION | system:SONAME
fetch_source()
{
    case $1 in
    crate:*) crate_folder "${1#crate:}" ;;
    debian:*) debian_folder "${1#debian:}" ;;
    system:*) ;; # nothing: what is installed is used as it is
    *)
        echo "source $1: neither crate: nor debian: nor system:" >&2
        return 1
        ;;
    esac
}

# One line of Cargo.lock's facts about a crate: version and checksum. Part of a recipe's stamp.
crate_pin()
{
    awk -v wanted="\"$1\"" '
        $1 == "[[package]]" { found = 0 }
        $1 == "name" { found = ($3 == wanted) }
        found && ($1 == "version" || $1 == "checksum") { printf "%s ", $3 }
    ' "$ALLOCATORS/sources/Cargo.lock"
}

# The folder into which cargo unpacked a crate, its checksum compared with Cargo.lock's by cargo.
crate_folder()
{
    local manifest folder
    cargo fetch --quiet --locked --manifest-path "$ALLOCATORS/sources/Cargo.toml" --target "$(cargo_target)" >&2 || true
    manifest=$(cargo metadata --quiet --locked --offline --format-version 1 --filter-platform "$(cargo_target)" \
        --manifest-path "$ALLOCATORS/sources/Cargo.toml" | crate_manifest "$1") || true
    folder=${manifest%/Cargo.toml}
    [ -n "$folder" ] || folder=$(unpacked_crate "$1")
    if [ ! -d "$folder" ]; then
        echo "crate $1 is not in sources/Cargo.lock or could not be fetched" >&2
        return 1
    fi
    echo "$folder"
}

# Where this one crate was unpacked earlier, if it was: cargo metadata prints nothing when any other is
# missing.
unpacked_crate()
{
    local version folder
    version=$(crate_pin "$1" | cut -d' ' -f1 | tr -d '"')
    for folder in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$1-$version"; do
        [ ! -f "$folder/.cargo-ok" ] || echo "$folder"
    done | head -n 1
}

cargo_target()
{
    rustc -vV | sed -n 's/^host: //p'
}

# jq is not on every machine, and cargo has no reader of its own JSON. apt-packages.txt lists python3.
crate_manifest()
{
    python3 -c '
import json, sys
for package in json.loads(sys.stdin.read() or "{}").get("packages", []):
    if package["name"] == sys.argv[1]:
        print(package["manifest_path"])
' "$1"
}

# The folder of an unpacked Debian source package, fetched and checked by apt from the mirrors that
# this machine is set up with.
debian_folder()
{
    local package=${1%%=*} folder="$SOURCES/${1/=/_}"
    if [ ! -d "$folder" ]; then
        apt_source_setup
        local download="$SOURCES/download-$package"
        rm -rf "$download" "$folder.part"
        mkdir -p "$download"
        # Callers run this in $( ), where bash forgets `set -e`.
        (cd "$download" && APT_CONFIG="$SOURCES/apt/apt.conf" apt-get -qq source --download-only "$1") >&2 || return 1
        dpkg-source --no-check -x "$download/$package"_*.dsc "$folder.part" >&2 || return 1
        mv "$folder.part" "$folder"
        rm -rf "$download"
    fi
    echo "$folder"
}

# A private apt: the machine's own mirrors, with source packages. Nothing under /etc is written; entries
# of other vendors are left out. Lists that are incomplete or older than an hour are fetched again.
apt_source_setup()
{
    local apt="$SOURCES/apt"
    [ -z "$(find "$apt/ready" -mmin -60 2>/dev/null)" ] || return 0
    rm -rf "$apt"
    mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/cache/archives/partial"
    apt_source_entries "$apt/sources"
    cat >"$apt/apt.conf" <<END
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$apt/sources";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
END
    if APT_CONFIG="$apt/apt.conf" apt-get -qq update >&2; then touch "$apt/ready"; fi
}

apt_source_entries()
{
    local codename file
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -e "$file" ] || continue
        awk -v suite="Suites:[^\n]*$codename" 'BEGIN { RS = ""; ORS = "\n\n" }
            $0 ~ suite { sub(/Types:[^\n]*/, "Types: deb-src"); print }' "$file" >"$1/$(basename "$file")"
    done
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -e "$file" ] || continue
        awk -v suite="^$codename" '$1 == "deb" {
            for (field = 2; field <= NF; field++)
                if ($field ~ suite) { sub(/^deb /, "deb-src "); print; next }
        }' "$file" >"$1/$(basename "$file" .list).list"
    done
}
