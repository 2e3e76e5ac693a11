#!/bin/sh
# serve.sh - a model over HTTP, by curl and wrk: answers, streams, chats, errors in OpenAI's form, bodies that are broken or
# too large, clients that leave in the middle, a full queue, a token, and a clean end. SECONDS_OF_LOAD=60 loads it longer.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"

make_corpus
make_run run.yaml 2 60
runs train run.yaml --out one --set model.context=64 --set data.valid_tokens=0
model=one

has_address() {
    grep -q http "$OUT" || is_over "$STARTED"
}

# serve ARGS...: starts a server on a free port; its address is in $url.
serve() {
    : >"$OUT"
    begin serve $model --listen 127.0.0.1:0 "$@"
    await "the server prints its address" has_address
    url=$(sed -n 's/.*\(http:.*[0-9]\)\/.*/\1/p' "$OUT")
    [ -n "$url" ] || fail "the server printed no address"
}

# stop: asks it to end, and checks that it does so in time with exit code 0.
stop() {
    kill -TERM "$STARTED"
    wait "$STARTED" || fail "the server ended with $?"
    says "$OUT" '[0-9]+ requests answered'
}

# ask PATH BODY [CURL FLAGS...]: posts a body; the answer is in `answer`, its status in $status.
ask() {
    path=$1
    body=$2
    shift 2
    status=$(curl -s -m $PATIENCE -o answer -w '%{http_code}' "$@" --data-binary "$body" "$url$path")
}

# answers STATUS FILTER: the last answer has this status, and jq's filter is true of it.
answers() {
    [ "$status" = "$1" ] || fail "status $status instead of $1: $(head -c 300 answer)"
    jq -e "$2" answer >/dev/null || fail "not $2: $(head -c 300 answer)"
}

serve --name tiny --queue 4 --batch 2
curl -s "$url/v1/models" | jq -e '.data[0].id == "tiny" and .object == "list"' >/dev/null || fail "models"
curl -s "$url/v1/models/tiny" | jq -e '.id == "tiny" and .object == "model"' >/dev/null || fail "the model by its name"
curl -s "$url/v1/models/other" | jq -e '.error.code == 404' >/dev/null || fail "a model that is not there"
curl -s "$url/v1/completions" | jq -e '.error.code == 405 and (.error.message | contains("POST"))' >/dev/null || fail "GET"
curl -s "$url/" | grep -q '<title>Strait' || fail "there is no page"

# The text is that of generate with the same seed.
runs generate one -p "the sea was" -n 20 --seed 7 -t 0.9 --top-k 20 --top-p 0.9 --json
text=$(jq -r .text "$OUT")
ask /v1/completions '{"model": "tiny", "prompt": "the sea was", "max_tokens": 20, "seed": 7, "temperature": 0.9, "top_k": 20,
    "top_p": 0.9}'
answers 200 '.object == "text_completion" and .usage.completion_tokens == 20 and .choices[0].finish_reason == "length"'
[ "$(jq -r '.choices[0].text' answer)" = "$text" ] || fail "the server's text is not that of generate"
ask /v1/completions '{"prompt": ["the sea was"], "max_tokens": 20, "seed": 7, "temperature": 0.9, "top_k": 20, "top_p": 0.9,
    "stream": true, "stream_options": {"include_usage": true}}' -N
[ "$status" = 200 ] && tail -n 2 answer | grep -q '^data: \[DONE\]$' || fail "the stream does not end"
sed -n 's/^data: {/{/p' answer | jq -rj '.choices[0].text // empty' >streamed
[ "$(cat streamed)" = "$text" ] || fail "the stream's text differs"
sed -n 's/^data: {/{/p' answer | tail -n 1 | jq -e '.usage.total_tokens > 20 and .choices == []' >/dev/null || fail "usage"
word=$(echo "$text" | tr ' ' '\n' | sed -n 3p)
ask /v1/completions "{\"prompt\": \"the sea was\", \"max_tokens\": 20, \"seed\": 7, \"temperature\": 0.9, \"top_k\": 20,
    \"top_p\": 0.9, \"stop\": [\"$word\"]}"
answers 200 ".choices[0].finish_reason == \"stop\" and (.choices[0].text | contains(\"$word\") | not)"

# An empty prompt begins after an end of text.
ask /v1/completions '{"prompt": "", "max_tokens": 3, "temperature": 0}'
answers 200 '.usage.completion_tokens == 3 or .choices[0].finish_reason == "stop"'

# Errors have OpenAI's form and the server goes on.
for body in '' '{' '[1]' '"x"' '{"prompt": 3}' '{"prompt": "a", "max_tokens": "x"}' '{"prompt": "a", "max_tokens": 0}' \
    '{"prompt": "a", "temperature": -1}' '{"prompt": "a", "top_p": 7}' '{"prompt": "a", "stop": 4}' '{"prompt": "a", "n": 2}' \
    '{"prompt": "a", "logprobs": 3}' '{"prompt": ["a", "b"]}' '{"prompt": "a", "stream": "yes"}' '{"prompt": "a", "prompt": "b"}'; do
    ask /v1/completions "$body"
    answers 400 '.error.message != "" and .error.type == "invalid_request_error" and .error.code == 400'
done
ask /v1/completions '{"model": "gpt-4", "prompt": "a"}'
answers 404 '.error.message | contains("gpt-4")'
ask /v1/embeddings '{"input": "a"}'
answers 404 '.error.code == 404'
ask /v1/completions '{"prompt": "a"}' -X DELETE
answers 405 '.error.code == 405'
ask /v1/completions "{\"prompt\": \"$(head -c 2000 text.txt | tr '\n' ' ')\"}"
answers 400 '.error.message | contains("context")'
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "hi"}]}'
answers 501 '.error.message | contains("template")'
head -c 3000000 /dev/zero | tr '\0' ' ' >large
ask /v1/completions @large
answers 413 '.error.code == 413'
head -c 30000000 /dev/zero | curl -s -m $PATIENCE -o /dev/null --data-binary @- "$url/v1/completions"
ask /v1/completions '{"prompt": "a"}' -H "Origin: http://elsewhere.example"
answers 403 '.error.code == 403'
ask /v1/completions '{"prompt": "a"}' -H "Host: elsewhere.example"
answers 403 '.error.code == 403'

# Clients that leave in the middle, with and without a stream, free their place: two of them fill the batch.
for stream in true false true false; do
    timeout 0.5 curl -sN -o /dev/null "$url/v1/completions" \
        -d "{\"prompt\": \"a\", \"max_tokens\": 65536, \"ignore_eos\": true, \"stream\": $stream}"
done
ask /v1/completions '{"prompt": "a", "max_tokens": 3}'
answers 200 '.usage.completion_tokens <= 3'

# A full queue: two are computed, four wait, the next are refused at once and told to come back. The long ones then go.
# What waits takes little memory, even of bodies that take 30 MB each as values of JSON.
rss() {
    sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$STARTED/status"
}
{ printf '{"prompt": "a", "max_tokens": 65536, "ignore_eos": true, "unknown": [0'; yes ',[]' | head -n 250000; echo ']}'; } >wide
before=$(rss)
pids=
for _ in 1 2 3 4 5 6; do # each asks again when its answer is complete, until it is killed
    (trap 'kill $! 2>/dev/null; exit' TERM; while :; do curl -s -o /dev/null "$url/v1/completions" --data-binary @wide & wait $!; done) &
    pids="$pids $!"
done
is_full() { # the six may still be read: what is not refused waits for its turn, and leaves
    refused=$(curl -s -m 1 -D headers -o answer -w '%{http_code}' "$url/v1/completions" -d '{"prompt": "a"}')
    [ "$refused" = 429 ]
}
await "a request is refused while the queue is full" is_full
says headers '^Retry-After: 1'
[ -n "${SANITIZED:-}" ] || [ "$(rss)" -lt $((before + 81920)) ] || fail "the server grew from $before to $(rss) kB"
jq -e '.error.type == "rate_limit_error"' answer >/dev/null || fail "429 has another form"
# shellcheck disable=SC2086
kill $pids 2>/dev/null
# shellcheck disable=SC2086
wait $pids 2>/dev/null
ask /v1/completions '{"prompt": "a", "max_tokens": 3}' --retry $PATIENCE --retry-delay 1
answers 200 '.choices[0].text != null'
stop

# Chats by a template; the end of the template ends the answer. A token, when one is wanted.
printf 'secret-token\n' >token
serve --chat-template '{role}: {content}\n' --token token
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "the sea"}], "max_tokens": 9}'
answers 401 '.error.type == "authentication_error"'
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "the sea"}], "max_tokens": 9, "temperature": 0}' \
    -H "Authorization: Bearer secret-token"
answers 200 '.object == "chat.completion" and .choices[0].message.role == "assistant"'
jq -e '.choices[0].message.content | contains("\n") | not' answer >/dev/null || fail "the answer goes on behind its end"
said=$(jq -r '.choices[0].message.content' answer)
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "the sea"}], "max_tokens": 9, "temperature": 0,
    "stream": true}' -H "Authorization: Bearer secret-token"
sed -n 's/^data: {/{/p' answer | head -n 1 | jq -e '.choices[0].delta.role == "assistant"' >/dev/null || fail "no role"
[ "$(sed -n 's/^data: {/{/p' answer | jq -rj '.choices[0].delta.content // empty')" = "$said" ] || fail "the chat's stream"
for body in '{"messages": []}' '{"messages": [{"role": "user"}]}' '{"messages": "hi"}' '{"messages": [7]}'; do
    ask /v1/chat/completions "$body" -H "Authorization: Bearer secret-token"
    answers 400 '.error.code == 400'
done
stop

# The model's own template, in Jinja: the same prompt gives the same answer. What cannot be rendered is named.
cp -r one own
cat >own/tokenizer_config.json <<'END'
{"eos_token": {"content": "\n"}, "chat_template": "{% for m in messages %}{{ m.role + ': ' + m['content'] | trim }}\n{% endfor %}\n{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"}
END
model=own
serve
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "the sea"}], "max_tokens": 9, "temperature": 0}'
answers 200 '.object == "chat.completion"'
[ "$(jq -r '.choices[0].message.content' answer)" = "$said" ] || fail "the template in Jinja gives another answer"
ask /v1/chat/completions '{"messages": [{"role": "user"}]}'
answers 400 '.error.message | contains("message 1")'
stop
echo "{% macro f() %}{% endmacro %}" >own/chat_template.jinja
serve
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "the sea"}]}'
answers 501 '.error.message | contains("{% macro %}")'
stop
# What a template refuses, or takes too long for, is the request's fault: trying again would not help.
serve --chat-template '{% if messages | length > 1 %}{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}{% endif %}{{ raise_exception("never") }}'
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "the sea"}]}'
answers 400 '.error.message | contains("never")'
ask /v1/chat/completions '{"messages": [{"role": "user", "content": "the sea"}, {"role": "user", "content": "was"}]}'
answers 400 '.error.message | contains("the chat template takes")'
stop
refuses 2 "filter nothing is not supported" serve one --listen 127.0.0.1:0 --chat-template '{{ a | nothing }}'
model=one

# Many clients at once, for a while; no error. Then the end: what is computed is finished.
serve
cat >post.lua <<'END'
wrk.method = "POST"
wrk.body = '{"prompt": "the sea was", "max_tokens": 8, "temperature": 0.8}'
done = function(summary)
    local e = summary.errors
    io.write(string.format("errors %d\n", e.connect + e.read + e.write + e.status + e.timeout))
end
END
wrk -t 2 -c 64 -d "${SECONDS_OF_LOAD:-3}s" --timeout 60s -s post.lua "$url/v1/completions" >load || fail "wrk ended with $?"
grep -qx 'errors 0' load || fail "$(cat load)"
rm answer
curl -sN -o answer "$url/v1/completions" -d '{"prompt": "a", "max_tokens": 500, "ignore_eos": true, "stream": true,
    "stream_options": {"include_usage": true}}' &
asked=$!
await "an answer begins" test -s answer
stop
wait $asked || fail "a request that was computed was dropped"
sed -n 's/^data: {/{/p' answer | tail -n 1 | jq -e '.usage.completion_tokens == 500' >/dev/null ||
    fail "it was not finished: $(tail -c 200 answer)"

# Connections that send nothing, or half of a request, do not keep others out.
if command -v node >/dev/null; then
    serve
    node "$here/idle.mjs" "$url" 700 >idle 2>&1 || fail "idle connections: $(cat idle)"
    stop
fi
# A body that stops arriving, or arrives slowly, has the time of --timeout, as the rest of a request. A body of spaces
# that is read to its end takes longer than PATIENCE.
serve --timeout 2
if command -v node >/dev/null; then
    node "$here/idle.mjs" "$url" half >idle 2>&1 || fail "half a body: $(cat idle)"
fi
{ while printf ' ' 2>/dev/null; do sleep 0.5; done; } | curl -sS -m $PATIENCE -o /dev/null -X POST -T . "$url/v1/completions" 2>/dev/null
code=$?
case $code in
0) fail "a slow body was answered" ;;
28) fail "a slow body was read for longer than --timeout" ;; # curl's own limit
esac
is_answered() { # on a busy machine, 2 s may be too little for an answer
    ask /v1/completions '{"prompt": "a", "max_tokens": 3}'
    [ "$status" = 200 ]
}
await "an answer after slow bodies" is_answered
answers 200 '.usage.completion_tokens <= 3'
stop

refuses 2 "not an address" serve one --listen nowhere
refuses 2 "content" serve one --listen 127.0.0.1:0 --chat-template "x"
refuses 2 "--queue 0" serve one --queue 0
refuses 3 "nothing" serve nothing --listen 127.0.0.1:0
mkdir hf && echo '{}' >hf/config.json
refuses 3 "import it first" serve hf --listen 127.0.0.1:0
