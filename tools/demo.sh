#!/usr/bin/env bash
# From a clone to an answer: installs missing dependencies, builds build/quire, serves the demo model on a free port,
# sends it two requests over the OpenAI API, streams the answers, prints the speed and the next steps, and ends.
set -eu
cd "$(dirname "$0")/.."
. tools/setup.sh
model=tools/demo_model/model

quire_setup build demo
[ -x build/quire ] || quire_say "building build/quire (a few minutes the first time: most of it is the tokenizer library)"
quire_build release OFF

log=$(mktemp)
build/quire serve "$model" --served-model-name demo --port 0 >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -f "$log"' EXIT
url=""
for _ in $(seq 300); do
    url=$(grep -oE 'http://[0-9.]+:[0-9]+' "$log" | head -1) && [ -n "$url" ] && break
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; quire_die "the server ended before it was ready"; }
    sleep 0.1
done
[ -n "$url" ] || { cat "$log" >&2; quire_die "the server was not ready within 30 seconds"; }
quire_say "$(grep -m1 'ready' "$log" || echo "serving on $url")"

now_ms() { echo $(($(date +%s%N) / 1000000)); }

ask() { # question
    printf '\n> %s\n\n' "$1"
    local body events started ended tokens
    events=$(mktemp)
    body=$(jq -nc --arg q "$1" '{model: "demo", stream: true, stream_options: {include_usage: true}, temperature: 0.7, seed: 1, max_tokens: 200,
                                 messages: [{role: "user", content: $q}]}')
    started=$(now_ms)
    curl -sSN --max-time 120 "$url/v1/chat/completions" -H 'Content-Type: application/json' -d "$body" | tee "$events" |
        sed -un 's/^data: \({.*\)$/\1/p' | jq --unbuffered -rj '.choices[0].delta.content // empty'
    ended=$(now_ms)
    tokens=$(sed -n 's/^data: \({.*\)$/\1/p' "$events" | jq -r 'select(.usage != null) | .usage.completion_tokens' | tail -1)
    rm -f "$events"
    [ "${tokens:-0}" -gt 0 ] || quire_die "no answer came; the server said: $(tail -1 "$log")"
    printf '\n\n  %s tokens in %s ms: %s tokens a second\n' "$tokens" "$((ended - started))" "$((tokens * 1000 / (ended - started + 1)))"
}

ask "Tell me a story."
ask "What is 27 plus 48?"

cat <<END

That was build/quire, serving a model of a few million parameters that comes with the repository.
To go on:
  build/quire generate $model              chat with it here
  build/quire serve $model                 an OpenAI server on http://127.0.0.1:8000/v1, a page to try it on /ui
  build/quire serve /path/to/Qwen2.5-1.5B-Instruct     any checkpoint of docs/start/models.md
  build/quire plan /path/to/model          what memory it will take, to the byte
  bash tools/test.sh                       every test
END
