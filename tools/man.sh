#!/usr/bin/env bash
# Writes manual pages from the program's own --help all, so that the two cannot differ.
#
#   bash tools/man.sh build/quire OUT_DIR      quire.1, and quire-COMMAND.1 of each command and each command of a command
#
# The build runs it; `cmake --install` installs the pages.
set -eu
. "$(dirname "$0")/package/commands.sh"
quire=$1
out=$2
version=$("$quire" version | head -1)
mkdir -p "$out"

# One page from one help text: paragraphs, options ("  --name VALUE   text") under headings that end with a colon, and
# other indented lines, which keep their layout.
page() { # name title-line
    awk -v name="$1" -v title="$2" -v version="$version" '
    function roff(text) { gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); return (text ~ /^[.\047]/ ? "\\&" : "") text }
    function plain() { if (fixed) print ".fi\n.RE"; fixed = 0 }
    BEGIN {
        print ".TH \"" toupper(name) "\" 1 \"\" \"" version "\" \"Quire\""
        print ".SH NAME\n" roff(name) " \\- " roff(title)
        print ".SH SYNOPSIS"
    }
    NR == 1 { sub(/^usage: /, ""); print ".nf\n" roff($0); synopsis = 1; next }
    synopsis && /^ / { sub(/^ +/, ""); print roff($0); next }
    synopsis { print ".fi\n.SH DESCRIPTION"; synopsis = 0 }
    /^$/ { if (fixed) print ""; else pending = 1; option = 0; next }
    /^examples:$/ { plain(); print ".SH EXAMPLES"; pending = 0; next }
    /^[^ ].*:$/ { plain(); print (seen++ ? "" : ".SH OPTIONS\n") ".SS \"" roff(substr($0, 1, length($0) - 1)) "\""; pending = 0; next }
    /^  --/ {
        plain()
        line = substr($0, 3); text = ""
        if (length($0) > 34 && substr($0, 33, 2) == "  ") { text = substr($0, 35); line = substr($0, 3, 32) }
        sub(/ +$/, "", line)
        print ".TP\n.B " roff(line)
        if (text != "") print roff(text)
        option = 1; pending = 0; next
    }
    option && substr($0, 1, 34) ~ /^ *$/ { sub(/^ +/, ""); print roff($0); next }
    /^ / {
        if (!fixed) { print ".RS 2\n.nf"; fixed = 1 } else if (pending) print ""
        pending = 0; print roff(substr($0, 3)); next
    }
    { plain(); if (pending && begun) print ".PP"; begun = 1; pending = 0; print roff($0) }
    END { plain(); if (name == "quire") print ".SH SEE ALSO\n.BR quire\\-serve (1)"; else print ".SH SEE ALSO\n.BR quire (1)" }
    ' >"$out/$1.1"
}

{
    echo "usage: quire COMMAND [arguments]"
    "$quire" --help | tail -n +2
} | page quire "serve language models; the same request gets the same bits"
quire_commands "$quire" | while IFS=$'\t' read -r words title; do
    "$quire" $words --help all </dev/null | page "quire-${words// /-}" "$title"
done
