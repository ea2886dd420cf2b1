#include "app/command/foreign_flags.h"

#define ADAPTERS "not supported yet: adapters"
#define ONE_DEVICE \
    "not supported: several devices share a model only with --tensor-parallel-size and --pipeline-parallel-size"
#define ONE_ENGINE "not supported yet: start a server for each device, with a proxy in front (docs/guides/serving.md)"
#define GUESSES "use --speculative-config"
#define GUESSES_BY GUESSES " '{\"method\": \"ngram\"}', or suffix, or draft_model"
#define GUESSES_MODEL GUESSES " '{\"method\": \"draft_model\", \"model\": \"DIR\"}'"
#define GUESSES_MOST GUESSES ", in its JSON \"num_speculative_tokens\""
#define GUESSES_LOOKUP GUESSES ", in its JSON \"prompt_lookup_min\" and \"prompt_lookup_max\""
#define GUESSES_SUFFIX GUESSES " '{\"method\": \"suffix\"}', which keeps nothing on disk"
#define GUESSES_NUMBER "not supported: the number of drafts per row follows from their benefit"
#define GUESSES_NO "not supported: drafts have no such option"
#define NO_MEDIA "not supported yet: models accept text only"
#define NO_ROPE "not supported: config.json sets RoPE"
#define NO_TRANSFER "not supported yet: a KV cache belongs to one engine"
#define OF_REQUESTS "a field of requests, an option of quire generate, or the model's generation_config.json"
#define GRAPHS "not supported: nothing is compiled; a GPU's steps are recorded as graphs unless --enforce-eager"
#define OWN_KERNELS "not supported: each device has one set of kernels, Quire's own"
#define WHOLE_MODEL "not supported: all layers of a model are on devices of one kind, which --device selects"

/* {names, accepted values, text}. A text that begins with "use --" names an option of Quire. */
/* clang-format off */
const struct cli_foreign foreign_flags[] = {
    /* several devices */
    {"decode-context-parallel-size,prefill-context-parallel-size", "1", ONE_DEVICE},
    {"data-parallel-size,dp,dp-size", "1", ONE_ENGINE},
    {"api-server-count", "1", "not supported: one front end serves all connections; --engine allows more of them"},
    {"expert-parallel-size,ep,ep-size", "1", "use --enable-expert-parallel, with --tensor-parallel-size"},
    {"all2all-backend,moe-a2a-backend", NULL, "not supported: ranks add up the experts' outputs in one way"},
    {"moe-backend,moe-runner-backend", NULL, OWN_KERNELS},
    {"cpu-moe,n-cpu-moe", NULL, WHOLE_MODEL},
    {"dist-init-addr", NULL, "use --master-addr and --master-port"},
    {"distributed-executor-backend,data-parallel-rank,"
     "data-parallel-address,disable-custom-all-reduce,tensor-split,ts,split-mode,sm", NULL, ONE_DEVICE},
    {"main-gpu,mg,base-gpu-id", NULL, "use --device cuda:N"},
    {"n-gpu-layers,gpu-layers,ngl", "99,999,all,auto", WHOLE_MODEL},
    {"cpu-offload-gb", "0", WHOLE_MODEL},

    /* the model */
    {"load-format", "auto,safetensors", "not supported: checkpoints are safetensors or GGUF files"},
    {"kv-cache-quant-method", NULL, "use --kv-cache-dtype, which names int8 and fp8, too"},
    {"calculate-kv-scales,quantization-param-path,kv-cache-dtype-skip-layers", NULL, "not supported: with --kv-cache-dtype, each token and head has its own scale"},
    {"cache-type-k,cache-type-v,ctk,ctv", NULL, "use --kv-cache-dtype, for both"},
    {"trust-remote-code,no-trust-remote-code", "", "Quire never runs code of a model"},
    {"revision,code-revision,tokenizer-revision", NULL, "not supported: write a revision after the name, such as ORG/NAME@REVISION"},
    {"tokenizer,tokenizer-path,skip-tokenizer-init", NULL, "not supported yet: the tokenizer is always MODEL's tokenizer.json"},
    {"tokenizer-mode", "auto", "not supported: the tokenizer is always MODEL's tokenizer.json"},
    {"chat-template,chat-template-file", NULL, "not supported yet: the chat template is MODEL's own"},
    {"chat-template-content-format", "auto,string", "not supported yet: templates get strings"},
    {"jinja", "", "chat templates are always rendered"},
    {"response-role", "assistant", "not supported: answers have the role assistant"},
    {"hf-overrides,hf-config-path,config-format,json-model-override-args", NULL, "not supported: config.json defines the model"},
    {"hf-token", NULL, "not supported: set HF_TOKEN in the environment of quire pull"},
    {"download-dir", NULL, "not supported: set HF_HUB_CACHE or HF_HOME"},
    {"hf-repo,hf,hfr", NULL, "not supported here: quire run ORG/NAME and quire serve ORG/NAME --pull download a missing model"},
    {"runner", "auto,generate", "use --task embed, for vectors"},
    {"convert", "auto,none", "use --task embed, for vectors"},
    {"model-impl", "auto", "not supported: a model has one implementation"},
    {"embedding,embeddings,is-embedding,reranking,rerank", NULL, "use --task embed; encoders and classifiers need no flag"},
    {"pooling,pooler-config,override-pooler-config", NULL, "not supported: the model's 1_Pooling/config.json sets pooling"},
    {"mmproj,limit-mm-per-prompt,mm-processor-kwargs,enable-multimodal,allowed-local-media-path,media-io-kwargs,"
     "mm-encoder-tp-mode,mm-processor-cache-gb", NULL, NO_MEDIA},
    {"rope-scaling,rope-theta,rope-scale,rope-freq-base,rope-freq-scale,yarn-orig-ctx", NULL, NO_ROPE},
    {"enable-lora,lora-modules,lora-paths,lora,lora-scaled,max-loras,max-lora-rank,max-cpu-loras,max-loras-per-batch,"
     "fully-sharded-loras,lora-target-modules,enable-prompt-adapter", NULL, ADAPTERS},
    {"speculative-model,speculative-draft-model-path,model-draft,md,hf-repo-draft,hfd", NULL, GUESSES_MODEL},
    {"speculative-algorithm,speculative-algo,spec-type", NULL, GUESSES_BY},
    {"num-speculative-tokens,speculative-num-draft-tokens,speculative-num-steps,draft-max,draft,draft-n", NULL, GUESSES_MOST},
    {"ngram-prompt-lookup-max,ngram-prompt-lookup-min", NULL, GUESSES_LOOKUP},
    {"lookup-cache-static,lcs,lookup-cache-dynamic,lcd", NULL, GUESSES_SUFFIX},
    {"draft-min,draft-p-min,draft-p-split,speculative-disable-by-batch-size", NULL, GUESSES_NUMBER},
    {"speculative-eagle-topk,speculative-token-map,num-lookahead-slots,speculative-draft-tensor-parallel-size,ctx-size-draft,"
     "cd,n-gpu-layers-draft,ngld,spec-decoding-acceptance-method", NULL, GUESSES_NO},

    /* memory and steps */
    {"mem-fraction-static", NULL, "use --gpu-memory-utilization"},
    {"chunked-prefill-size,max-prefill-tokens,max-batch-prefill-tokens,batch-size,b,ubatch-size,ub", NULL, "use --max-num-batched-tokens"},
    {"max-total-tokens", NULL, "use --num-kv-blocks, of --block-size tokens each"},
    {"kv-offloading-size,hicache-size,hicache-ratio", NULL, "use --swap-space"},
    {"enable-hierarchical-cache", NULL, "use --swap-space"},
    {"disable-radix-cache", NULL, "use --no-enable-prefix-caching"},
    {"cache-reuse", NULL, "use --enable-prefix-caching, which is on"},
    {"radix-eviction-policy", NULL, "use --prefix-cache-eviction"},
    {"prefix-caching-hash-algo", NULL, "not supported: blocks are always found by a keyed hash of 256 bits"},
    {"kv-transfer-config,kv-events-config,disaggregation-mode,kv-offloading-backend", NULL, NO_TRANSFER},
    {"schedule-policy", NULL, "use --scheduling-policy"},
    {"max-concurrent-requests", NULL, "use --max-num-queued-reqs"},
    {"enable-chunked-prefill", "", "prompts are always computed in chunks of at most --max-num-batched-tokens"},
    {"cont-batching,cb", "", "batches are continuous unless --batching says otherwise"},
    {"enable-mixed-chunk", "", "steps always mix decodes and chunks of prompts"},
    {"no-context-shift", "", "a context is never shifted: an answer ends when it is full"},
    {"async-scheduling", "", "on a GPU the next step is always planned while one runs"},
    {"max-long-partial-prefills", NULL, "not supported: --max-num-partial-prefills bounds all of them"},
    {"compilation-config,enable-torch-compile,cuda-graph-max-bs,cuda-graph-bs,cuda-graph-sizes,max-seq-len-to-capture,"
     "torch-compile-max-bs,cudagraph-capture-sizes,max-cudagraph-capture-size,optimization-level,O,O0,O1,O2,O3", NULL, GRAPHS},
    {"attention-backend,prefill-attention-backend,decode-attention-backend,sampling-backend", NULL, OWN_KERNELS},
    {"flash-attn,fa", ",on,off,auto,1,0", OWN_KERNELS},
    {"threads-batch,tb", NULL, "use --threads, for all steps"},
    {"cpu-mask,cpu-range,numa", NULL, "use --cpu-bind"},
    {"enable-sleep-mode", NULL, "not supported yet: an engine keeps its memory until it exits"},
    {"no-mmap,mlock", NULL, "not supported: weights are mapped and used in place"},

    /* requests and answers */
    {"enable-auto-tool-choice", "", "tool calls are always detected, by --tool-call-parser"},
    {"tool-parser-plugin", NULL, "not supported: --tool-call-parser selects a built-in one"},
    {"enable-reasoning", "", "reasoning is always detected, by --reasoning-parser"},
    {"reasoning-format,reasoning-budget", NULL, "not supported: --reasoning-parser selects the format"},
    {"guided-decoding-backend,grammar-backend", "auto,llguidance,guidance,xgrammar,outlines,lm-format-enforcer", "grammars are always compiled by llguidance"},
    {"guided-decoding-disable-any-whitespace", "", "JSON answers are compact unless --structured-outputs-config says otherwise"},
    {"grammar,grammar-file,json-schema,j", NULL, "not supported: a field of requests here, grammar or json_schema"},
    {"generation-config", "auto", "not supported: defaults come from MODEL's generation_config.json"},
    {"override-generation-config,sampling-defaults", NULL, "not supported: sampling is set by " OF_REQUESTS},
    {"temp,min-p", NULL, "not supported here: " OF_REQUESTS},
    {"repeat-penalty,repetition-penalty,presence-penalty,frequency-penalty", NULL, "not supported: a field of requests"},
    {"max-logprobs", "20", "not supported: a request may have up to 20"},
    {"logprobs-mode", "raw-logprobs", "not supported: logprobs are computed from raw logits"},
    {"enable-force-include-usage", NULL, "not supported: a field of requests here, stream_options.include_usage"},
    {"return-tokens-as-token-ids", NULL, "not supported: a field of requests here, return_token_ids"},
    {"logits-processors,logits-processor-pattern,enable-custom-logit-processor", NULL, "not supported yet: custom logits processors"},
    {"stream-interval", "1", "not supported: a field of requests here, stream_interval"},
    {"n-predict,predict,n", NULL, "use --max-tokens of quire generate; with quire serve, max_tokens of a request"},

    /* HTTP and the log */
    {"uds", NULL, "not supported yet: HTTP uses TCP only"},
    {"root-path,api-prefix,middleware", NULL, "not supported: use a proxy (docs/guides/serving.md)"},
    {"ssl-ca-certs,ssl-cert-reqs,ssl-keyfile-password,enable-ssl-refresh", NULL,
     "not supported: SIGHUP reloads certificates, keys must not be encrypted, and clients use API keys"},
    {"api-key-file", NULL, "use --tenants, or QUIRE_API_KEY in the environment"},
    {"allow-credentials,allowed-methods,allowed-headers", NULL, "use --allowed-origins; methods and headers are fixed by the API"},
    {"timeout,to", NULL, "use --header-timeout, --body-timeout, --keep-alive-timeout and --write-timeout"},
    {"disable-frontend-multiprocessing", "", "the front end runs in the engine's process unless --engine is set"},
    {"metrics,enable-metrics", "", "/metrics is always available; --metrics-listen adds another address"},
    {"enable-request-id-headers", "", "replies always have x-request-id"},
    {"enable-prompt-tokens-details,enable-cache-report", "", "usage always includes cached tokens"},
    {"disable-log-requests,no-enable-log-requests,disable-uvicorn-access-log", "", "requests are logged only with --log-requests"},
    {"max-log-len", NULL, "not supported: texts are never logged"},
    {"uvicorn-log-level,log-level,log-level-http,verbosity,lv", NULL, "use --verbose; requests are logged with --log-requests"},
    {"enable-trace", NULL, "use --otlp-endpoint"},
    {"log-config-file", NULL, "use --log-format"},
    {"decode-log-interval", NULL, "not supported: the line is logged every ten seconds; --disable-log-stats turns it off"},
    {"no-webui,disable-webui", NULL, "not supported: /ui is a static page without secrets; the API that it uses requires the key"},
    {"headless", NULL, "not supported: use quire engine MODEL for an engine without HTTP"},
    {"config", NULL, "not supported: options are set on the command line"},
    {"worker-cls,worker-extension-cls,scheduler-cls,additional-config", NULL, "not supported: there are no plug-ins"},
    {"collect-detailed-traces", NULL, "not supported: spans include every phase; --otlp-endpoint exports them"},
    {0},
};
/* clang-format on */
