/* The gateway's own replies: models, health, version, targets, metrics. Loop's thread; each ends the exchange. */
#ifndef QUIRE_GATEWAY_LISTS_H
#define QUIRE_GATEWAY_LISTS_H

#include "server/gateway/gateway_internal.h"

void list_models(struct gateway *g, struct http_exchange *x);
void list_model(struct gateway *g, struct http_exchange *x); /* /v1/models/{id} */
/* 503 unless some target of each model may serve. */
void list_health(struct gateway *g, struct http_exchange *x);
void list_live(struct gateway *g, struct http_exchange *x);
void list_version(struct gateway *g, struct http_exchange *x);
void list_targets(struct gateway *g, struct http_exchange *x);
/* gateway_metrics.c */
void list_metrics(struct gateway *g, struct http_exchange *x);

#endif
