#!/usr/bin/env bash
# Writes completions for bash, zsh and fish from the program's own --help all, so that they cannot differ from it.
#
#   bash tools/package/completions.sh build/quire OUT_DIR      OUT_DIR/quire.bash, _quire (zsh), quire.fish
#
# The build runs it; `cmake --install` installs the files where the shells look.
set -eu
. "$(dirname "$0")/commands.sh"
quire=$1
out=$2
mkdir -p "$out"
table=$(mktemp)
trap 'rm -f "$table"' EXIT

# Lines "C words title" and "O words name value sentence", divided by tabs. The value is empty for a flag; a switch that
# is on by default has the name no-NAME as well, and that is the one that is useful. A value is a|b|c where the help has
# such a list, or begins with "a, b or c".
# awk functions: the choices of a value, or ""; and whether a command that has actions also runs without one, such as
# `quire batch FILE`: then its options differ from those of its first action.
functions='
    function words_of(value) {
        if (value !~ /^[a-z0-9_-]+(\|[a-z0-9_-]+)+$/) return ""
        gsub(/\|/, " ", value)
        return value
    }
    function runs(parent, actions) {
        sub(/ .*/, "", actions)
        return options[parent] ~ /--.*--/ && options[parent] != options[parent " " actions]
    }'

quire_commands "$quire" | while IFS=$'\t' read -r words title; do
    printf 'C\t%s\t%s\n' "$words" "$title"
    "$quire" $words --help all </dev/null | awk -v words="$words" '
        function flush() {
            if (name == "") return
            sub(/\. .*/, "", text); sub(/\.$/, "", text)
            if (value == "NAME" && match(text, /^[a-z0-9_-]+(, [a-z0-9_-]+)* or [a-z0-9_-]+(:N)?([:;] |$)/)) {
                value = substr(text, 1, RLENGTH); sub(/[:;] $/, "", value); gsub(/, | or /, "|", value); sub(/[|][a-z]+:N$/, "", value)
            }
            print "O\t" words "\t" name "\t" value "\t" text
            name = ""
        }
        /^  --/ {
            flush()
            line = substr($0, 3); text = ""
            if (length($0) > 34 && substr($0, 33, 2) == "  ") { text = substr($0, 35); line = substr($0, 3, 32) }
            sub(/ +$/, "", line); sub(/^--/, "", line); sub(/^\[no-\]/, "no-", line)
            name = line; value = ""
            if ((at = index(line, " ")) > 0) { name = substr(line, 1, at - 1); value = substr(line, at + 1) }
            next
        }
        name != "" && substr($0, 1, 34) ~ /^ *$/ && $0 != "" { sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0; next }
        { flush() }
        END { flush() }'
    printf 'O\t%s\thelp\t\tPrint the help; --help all prints all of it\n' "$words"
done >"$table"

awk -F '\t' "$functions"'
    function add(list, word) { return list (list == "" ? "" : " ") word }
    $1 == "C" { n = split($2, w, " "); if (n == 1) top = add(top, $2); else { subs[w[1]] = add(subs[w[1]], w[2]); if (!(w[1] in order)) { order[w[1]] = 1; parents[++n_parents] = w[1] } } paths[++n_paths] = $2 }
    $1 == "O" { options[$2] = add(options[$2], "--" $3); if ($4 != "") valued[$2] = valued[$2] " --" $3 " " }
    $1 == "O" && words_of($4) != "" { choices[++n_choices] = "\"" $2 " --" $3 "\") COMPREPLY=($(compgen -W \"" words_of($4) "\" -- \"$cur\")); return ;;" }
    END {
        print "# bash completion for quire. Written by tools/package/completions.sh; do not edit."
        print "_quire() {"
        print "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} options=\"\" valued=\"\""
        print "    COMPREPLY=()"
        print "    if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W \"" top " --help --version\" -- \"$cur\")); return; fi"
        print "    case $command in"
        for (i = 1; i <= n_parents; i++) {
            print "        " parents[i] ")"
            own = runs(parents[i], subs[parents[i]])
            print "            if [ \"$COMP_CWORD\" = 2 ]" (own ? " && [ \"${cur#-}\" = \"$cur\" ]" : "") "; then COMPREPLY=($(compgen -W \"" subs[parents[i]] " --help\" -- \"$cur\")); return; fi"
            print "            case \" " subs[parents[i]] " \" in *\" ${COMP_WORDS[2]} \"*) [ \"$COMP_CWORD\" = 2 ] || command=\"$command ${COMP_WORDS[2]}\" ;; esac ;;"
        }
        print "    esac"
        print "    case $command in"
        for (i = 1; i <= n_paths; i++) {
            print "        \"" paths[i] "\")"
            print "            options=\"" options[paths[i]] "\""
            print "            valued=\"" valued[paths[i]] "\" ;;"
        }
        print "    esac"
        print "    case \"$command $prev\" in"
        for (i = 1; i <= n_choices; i++) print "        " choices[i]
        print "    esac"
        print "    # A value, or an argument without a name: the names of files, by -o default."
        print "    case \"$valued\" in *\" $prev \"*) return ;; esac"
        print "    case $cur in -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;; esac"
        print "}"
        print "complete -o default -F _quire quire"
    }' "$table" >"$out/quire.bash"

awk -F '\t' "$functions"'
    function quoted(text) { gsub(/\047/, "\047\\\047\047", text); return "\047" text "\047" }
    function plain(text) { gsub(/[\]\[:\\]/, "\\\\&", text); return text }
    function value_of(v) {
        if (v == "") return ""
        if (words_of(v) != "") return ":value:(" words_of(v) ")"
        return ":" plain(v) ":" (v ~ /FILE|DIR|PATH|MODEL|NAME/ ? "_files" : "")
    }
    $1 == "C" { n = split($2, w, " "); line = quoted(plain(w[n]) ":" plain($3))
        if (n == 1) top = top "        " line "\n"; else { if (!(w[1] in subs)) parents[++n_parents] = w[1]; subs[w[1]] = subs[w[1]] "                " line "\n"; actions[w[1]] = actions[w[1]] (actions[w[1]] == "" ? "" : " ") w[2] }
        paths[++n_paths] = $2 }
    $1 == "O" { options[$2] = options[$2] " \\\n            " quoted("--" $3 ($4 == "" ? "" : "=") "[" plain($5) "]" value_of($4)) }
    END {
        print "#compdef quire\n# zsh completion for quire. Written by tools/package/completions.sh; do not edit."
        print "_quire() {\n    local -a names\n    local command=$words[2]"
        print "    if (( CURRENT == 2 )); then\n        names=(\n" top "        )\n        _describe command names\n        return\n    fi"
        print "    shift words; (( CURRENT-- ))"
        print "    case $command in"
        for (i = 1; i <= n_parents; i++) {
            print "        " parents[i] ")"
            print "            if (( CURRENT == 2 )); then\n                names=(\n" subs[parents[i]] "                )\n                _describe command names\n" (runs(parents[i], actions[parents[i]]) ? "" : "                return\n") "            elif [[ \" " actions[parents[i]] " \" == *\" $words[2] \"* ]]; then"
            print "                command=\"$command $words[2]\"; shift words; (( CURRENT-- ))\n            fi ;;"
        }
        print "    esac"
        print "    case $command in"
        for (i = 1; i <= n_paths; i++) print "        " quoted(paths[i]) ") _arguments" options[paths[i]] " \\\n            \047*:argument:_files\047 ;;"
        print "    esac\n}"
        print "if [ \"$funcstack[1]\" = _quire ]; then _quire \"$@\"; else compdef _quire quire; fi"
    }' "$table" >"$out/_quire"

awk -F '\t' "$functions"'
    function quoted(text) { gsub(/\\/, "\\\\", text); gsub(/\047/, "\\\047", text); return "\047" text "\047" }
    BEGIN {
        print "# fish completion for quire. Written by tools/package/completions.sh; do not edit."
        print "function __quire_at # words...: the command line begins with quire and these"
        print "    set -l typed (commandline -opc)"
        print "    test (count $typed) -gt (count $argv); or return 1"
        print "    test \"$typed[2..]\" = \"$argv\"; or string match -q -- \"$argv *\" \"$typed[2..]\""
        print "end"
        print "function __quire_ends_at # words...: and nothing else"
        print "    set -l typed (commandline -opc)"
        print "    test (count $typed) -eq (math (count $argv) + 1); and test \"$typed[2..]\" = \"$argv\""
        print "end"
        print "function __quire_without # command actions...: the command line begins with quire and the command, and none of its actions"
        print "    set -l typed (commandline -opc)"
        print "    test (count $typed) -gt 1; and test \"$typed[2]\" = $argv[1]; or return 1"
        print "    not contains -- \"$typed[3]\" $argv[2..]"
        print "end"
    }
    FNR == NR { # the first time: the actions and the names of options
        if ($1 == "C" && split($2, w, " ") == 2) actions[w[1]] = actions[w[1]] (actions[w[1]] == "" ? "" : " ") w[2]
        if ($1 == "O") options[$2] = options[$2] " --" $3
        next
    }
    $1 == "C" { n = split($2, w, " "); print "complete -c quire" (n == 1 || !runs(w[1], actions[w[1]]) ? " -f" : "") " -n " quoted("__quire_ends_at" (n == 1 ? "" : " " w[1])) " -a " w[n] " -d " quoted($3) }
    $1 == "O" {
        line = "complete -c quire -n " quoted($2 in actions ? "__quire_without " $2 " " actions[$2] : "__quire_at " $2) " -l " $3 " -d " quoted($5)
        if (words_of($4) != "") line = line " -x -a " quoted(words_of($4))
        else if ($4 != "") line = line " -r"
        print line
    }' "$table" "$table" >"$out/quire.fish"
