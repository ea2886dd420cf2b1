# quire_commands PROGRAM: the commands of quire from its own help texts, so that manual pages and completions have what
# the program has. One line each: the words of the command, a tab, its title. Commands of commands follow their command.
# Source this file.

# quire_title PROGRAM COMMAND NAME: the first clause of its help, such as "pins a prefix". It has no links to documents.
quire_title() {
    "$@" --help </dev/null | awk -v RS= 'NR == 2 {
        sub(/\n .*/, ""); gsub(/\n/, " "); gsub(/ \(docs\/[^)]*\)/, ""); sub(/[.:;]( .*)?$/, "")
        print tolower(substr($0, 1, 1)) substr($0, 2)
    }'
}

quire_commands() {
    local quire=$1 command title words
    "$quire" --help | sed -nE '/^Begin with/q; s/^  ([a-z-]+) +(.*)/\1 \2/p' | while read -r command title; do
        printf '%s\t%s\n' "$command" "$title"
        # Either "  name   title", or "  quire COMMAND name ARGUMENTS [options]" without a title.
        "$quire" "$command" --help all 2>/dev/null | awk -v command="$command" '
            /^examples?:/ || /^  --/ { exit }
            index($0, "  quire " command " ") == 1 && / \[options\]$/ { print command " " $3 "\t"; next }
            usage ~ / (BENCHMARK|PART|ACTION) / && /^  [a-z]+ +[a-z]/ {
                title = $0; sub(/^  [a-z]+ +/, "", title); print command " " $1 "\t" title
            }
            NR == 1 { usage = $0 " "; if ($4 ~ /^[a-z]+$/) print command " " $4 "\t" }' |
            while IFS=$'\t' read -r words title; do
                [ -n "$title" ] || title=$(quire_title "$quire" $words)
                printf '%s\t%s\n' "$words" "$title"
            done
    done
}
