/* The Rust functions that only open.c calls: quire_text_open() and quire_text_identity() for a directory, and for
 * tokenizer.json and tokenizer_config.json in memory. */
#ifndef QUIRE_TEXT_RUST_H
#define QUIRE_TEXT_RUST_H

#include "text/quire_text.h"

int quire_text_open_dir(const char *dir, struct quire_text **out, struct quire_error *err);
int quire_text_open_made(const char *tokenizer, size_t n_tokenizer, const char *config, size_t n_config,
                         struct quire_text **out, struct quire_error *err);
int quire_text_identity_dir(const char *dir, uint8_t sha256[32], struct quire_error *err);
int quire_text_identity_made(const char *tokenizer, size_t n_tokenizer, const char *config, size_t n_config,
                             uint8_t sha256[32], struct quire_error *err);

#endif
