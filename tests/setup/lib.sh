# Shared by the scripts beside it. Progress goes to stderr; stdout holds only the answer.

# die ends the script with one line. The Makefile asks for that line on stdout (DIE_FD=1), so that
# it can be make's own error message and the last thing printed.
die() {
    echo "$*" >&"${DIE_FD:-2}"
    exit 1
}

say() {
    echo "pglimit: $*" >&2
}

# lacks_apt tells whether packages cannot be installed from here.
lacks_apt() {
    ! command -v apt-get >/dev/null ||
        { [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; }
}
