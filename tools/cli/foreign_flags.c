#include "tools/cli/foreign_flags.h"

#define ADAPTERS "not built yet: adapters"
#define ONE_DEVICE \
    "not built: several devices share a model by --tensor-parallel-size and --pipeline-parallel-size alone"
#define ONE_ENGINE "not built yet: start an engine for each device, with a proxy before them (docs/guides/serving.md)"
#define NO_EXPERTS "not built yet: models with experts"
#define GUESSES "here --speculative-config"
#define GUESSES_BY GUESSES " '{\"method\": \"ngram\"}', or suffix, or draft_model"
#define GUESSES_MODEL GUESSES " '{\"method\": \"draft_model\", \"model\": \"DIR\"}'"
#define GUESSES_MOST GUESSES ", in its JSON \"num_speculative_tokens\""
#define GUESSES_LOOKUP GUESSES ", in its JSON \"prompt_lookup_min\" and \"prompt_lookup_max\""
#define GUESSES_SUFFIX GUESSES " '{\"method\": \"suffix\"}', which keeps nothing on disk"
#define GUESSES_NUMBER "not built: how many drafts a row has follows from what they are worth"
#define GUESSES_NO "not built: there is no such choice for drafts"
#define NO_MEDIA "not built yet: models take text only"
#define NO_ROPE "not built: RoPE is what config.json says"
#define NO_STRUCTURE "not built yet: structured output"
#define NO_TRANSFER "not built yet: a KV cache is of one engine"
#define OF_REQUESTS "a request's field here, or the model's generation_config.json"
#define GRAPHS "not built: there is nothing to compile; a GPU's steps are recorded as graphs unless --enforce-eager"
#define OWN_KERNELS "not built: there is one set of kernels for each device, Quire's own"
#define WHOLE_MODEL "not built: a model's layers are all on devices of one kind; here --device"

/* {names, accepted values, text}. A text that begins with "here --" names an option of Quire. */
/* clang-format off */
const struct cli_foreign foreign_flags[] = {
    /* several devices */
    {"decode-context-parallel-size,prefill-context-parallel-size", "1", ONE_DEVICE},
    {"data-parallel-size,dp,dp-size", "1", ONE_ENGINE},
    {"api-server-count", "1", "not built: one front end takes all connections; more of them with --engine"},
    {"expert-parallel-size,ep,ep-size", "1", NO_EXPERTS},
    {"enable-expert-parallel,all2all-backend,moe-backend,cpu-moe,n-cpu-moe", NULL, NO_EXPERTS},
    {"dist-init-addr", NULL, "here --master-addr and --master-port"},
    {"distributed-executor-backend,data-parallel-rank,"
     "data-parallel-address,disable-custom-all-reduce,tensor-split,ts,split-mode,sm", NULL, ONE_DEVICE},
    {"main-gpu,mg,base-gpu-id", NULL, "here --device cuda:N"},
    {"n-gpu-layers,gpu-layers,ngl,cpu-offload-gb", NULL, WHOLE_MODEL},

    /* the model */
    {"load-format", "auto,safetensors", "not built: checkpoints are safetensors"},
    {"kv-cache-quant-method", NULL, "here --kv-cache-dtype, which names int8 and fp8, too"},
    {"calculate-kv-scales,quantization-param-path,kv-cache-dtype-skip-layers", NULL, "not built: with --kv-cache-dtype each token and head has a scale of its own"},
    {"cache-type-k,cache-type-v,ctk,ctv", NULL, "here --kv-cache-dtype, for both"},
    {"trust-remote-code,no-trust-remote-code", "", "no code of a model is ever run"},
    {"revision,code-revision,tokenizer-revision", NULL, "not built: a revision goes after the name, as in ORG/NAME@REVISION"},
    {"tokenizer,tokenizer-path,skip-tokenizer-init", NULL, "not built yet: the tokenizer is MODEL's tokenizer.json"},
    {"tokenizer-mode", "auto", "not built: the tokenizer is MODEL's tokenizer.json"},
    {"chat-template,chat-template-file", NULL, "not built yet: the chat template is MODEL's own"},
    {"chat-template-content-format", "auto,string", "not built yet: templates are given strings"},
    {"jinja", "", "chat templates are always rendered"},
    {"response-role", "assistant", "not built: answers are of the role assistant"},
    {"hf-overrides,hf-config-path,config-format,json-model-override-args", NULL, "not built: a model is what its config.json says"},
    {"hf-token", NULL, "not built: set HF_TOKEN in the environment of quire pull"},
    {"download-dir", NULL, "not built: set HF_HUB_CACHE or HF_HOME"},
    {"hf-repo,hf,hfr", NULL, "not built: quire pull ORG/NAME brings a model; then its name is MODEL"},
    {"alias,a", NULL, "here --served-model-name"},
    {"runner", "auto,generate", "here --task embed, for vectors"},
    {"convert", "auto,none", "here --task embed, for vectors"},
    {"model-impl", "auto", "not built: a model is computed in one way"},
    {"embedding,embeddings,is-embedding,reranking,rerank", NULL, "here --task embed; encoders and classifiers need no flag"},
    {"pooling,pooler-config,override-pooler-config", NULL, "not built: pooling is what the model's 1_Pooling/config.json says"},
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
    {"context-length,ctx-size,c,max-seq-len", NULL, "here --max-model-len"},
    {"mem-fraction-static", NULL, "here --gpu-memory-utilization"},
    {"max-running-requests,parallel,np", NULL, "here --max-num-seqs"},
    {"chunked-prefill-size,max-prefill-tokens,max-batch-prefill-tokens,batch-size,b,ubatch-size,ub", NULL, "here --max-num-batched-tokens"},
    {"max-total-tokens", NULL, "here --num-kv-blocks, of --block-size tokens each"},
    {"page-size", NULL, "here --block-size"},
    {"kv-offloading-size,hicache-size,hicache-ratio", NULL, "here --swap-space"},
    {"enable-hierarchical-cache", NULL, "here --swap-space"},
    {"disable-radix-cache", NULL, "here --no-enable-prefix-caching"},
    {"cache-reuse", NULL, "here --enable-prefix-caching, which is on"},
    {"radix-eviction-policy", NULL, "here --prefix-cache-eviction"},
    {"prefix-caching-hash-algo", NULL, "not built: blocks are found by a keyed hash of 256 bits, always"},
    {"kv-transfer-config,kv-events-config,disaggregation-mode,kv-offloading-backend", NULL, NO_TRANSFER},
    {"schedule-policy", NULL, "here --scheduling-policy"},
    {"max-queued-requests,max-concurrent-requests", NULL, "here --max-num-queued-reqs"},
    {"enable-chunked-prefill", "", "prompts are always computed in chunks, of --max-num-batched-tokens at most"},
    {"cont-batching,cb", "", "here --batching, which is continuous by default"},
    {"enable-mixed-chunk", "", "a step always has decodes and chunks of prompts"},
    {"no-context-shift", "", "a context is never shifted: an answer ends where it is full"},
    {"async-scheduling", "", "on a GPU the next step is always planned while one runs"},
    {"max-long-partial-prefills", NULL, "not built: here --max-num-partial-prefills bounds all of them"},
    {"random-seed", NULL, "here --seed"},
    {"disable-cuda-graph", NULL, "here --enforce-eager"},
    {"compilation-config,enable-torch-compile,cuda-graph-max-bs,cuda-graph-bs,cuda-graph-sizes,max-seq-len-to-capture,"
     "torch-compile-max-bs,cudagraph-capture-sizes,max-cudagraph-capture-size,optimization-level,O,O0,O1,O2,O3", NULL, GRAPHS},
    {"attention-backend,flash-attn,fa,prefill-attention-backend,decode-attention-backend,sampling-backend", NULL, OWN_KERNELS},
    {"threads-batch,tb", NULL, "here --threads, for all steps"},
    {"t", NULL, "here --threads"},
    {"cpu-mask,cpu-range,numa", NULL, "here --cpu-bind"},
    {"enable-sleep-mode", NULL, "not built yet: an engine keeps its memory until it ends"},
    {"no-mmap,mlock", NULL, "not built: weights are mapped and used in place"},

    /* requests and answers */
    {"enable-auto-tool-choice", "", "calls are always looked for, as --tool-call-parser says"},
    {"tool-parser-plugin", NULL, "not built: here --tool-call-parser names one that is there"},
    {"reasoning-parser,reasoning-format,enable-reasoning,reasoning-budget", NULL, "not built yet: reasoning stays in the text"},
    {"guided-decoding-backend,structured-outputs-config,grammar-backend,grammar,grammar-file,json-schema,j", NULL, NO_STRUCTURE},
    {"generation-config", "auto", "not built: defaults are those of MODEL's generation_config.json"},
    {"override-generation-config,temp,sampling-defaults,repeat-penalty,min-p", NULL, "not built: " OF_REQUESTS},
    {"max-logprobs", "20", "not built: a request may ask for up to 20"},
    {"logprobs-mode", "raw-logprobs", "not built: logprobs are of the raw logits"},
    {"enable-force-include-usage", NULL, "not built: a field of requests here, stream_options.include_usage"},
    {"return-tokens-as-token-ids", NULL, "not built: a field of requests here, return_token_ids"},
    {"logits-processors,logits-processor-pattern,enable-custom-logit-processor", NULL, "not built yet: processors of your own"},
    {"stream-interval", "1", "not built: a field of requests here, stream_interval"},
    {"n-predict,predict,n", NULL, "here --max-tokens of quire generate; of quire serve a request's max_tokens"},

    /* HTTP and the log */
    {"uds", NULL, "not built yet: HTTP is on TCP only"},
    {"root-path,api-prefix,middleware", NULL, "not built: a proxy does that (docs/guides/serving.md)"},
    {"ssl-ca-certs,ssl-cert-reqs,ssl-keyfile-password,enable-ssl-refresh", NULL,
     "not built: certificates are read again on SIGHUP, keys are not encrypted, clients have API keys"},
    {"ssl-key-file", NULL, "here --ssl-keyfile"},
    {"ssl-cert-file", NULL, "here --ssl-certfile"},
    {"api-key-file", NULL, "here --tenants, or QUIRE_API_KEY in the environment"},
    {"allow-credentials,allowed-methods,allowed-headers", NULL, "here --allowed-origins; methods and headers are those of the API"},
    {"timeout,to", NULL, "here --write-timeout and its like"},
    {"disable-frontend-multiprocessing", "", "the front end is in the engine's process unless --engine"},
    {"metrics,enable-metrics", "", "/metrics is always there; also elsewhere by --metrics-listen"},
    {"enable-request-id-headers", "", "replies always have x-request-id"},
    {"enable-prompt-tokens-details,enable-cache-report", "", "usage always tells cached tokens"},
    {"enable-log-requests", NULL, "here --log-requests"},
    {"disable-log-requests,no-enable-log-requests,disable-uvicorn-access-log", "", "requests are logged with --log-requests only"},
    {"max-log-len", NULL, "not built: texts are never logged"},
    {"uvicorn-log-level,log-level,log-level-http,verbose,v,verbosity,lv", NULL, "not built: the log has one level"},
    {"otlp-traces-endpoint,enable-trace", NULL, "here --otlp-endpoint"},
    {"log-config-file", NULL, "here --log-format"},
    {"decode-log-interval", NULL, "not built: the line comes every ten seconds; here --disable-log-stats"},
    {"no-webui,disable-webui", NULL, "not built: /ui is a file without secrets; what it asks for asks for the key"},
    {"headless", NULL, "not built: quire engine MODEL is an engine without HTTP"},
    {"config", NULL, "not built: options stand on the command line"},
    {"worker-cls,worker-extension-cls,scheduler-cls,additional-config", NULL, "not built: there are no plug-ins"},
    {"collect-detailed-traces", NULL, "not built: spans have every phase; here --otlp-endpoint"},
    {0},
};
/* clang-format on */
