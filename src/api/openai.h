/* openai.h: shared by OpenAI's endpoints. */
#ifndef LOCKSTEP_API_OPENAI_H
#define LOCKSTEP_API_OPENAI_H

#include "api/dialects.h"
#include "server/request_params.h"

extern const struct dialect openai_chat_dialect, openai_completion_dialect,
    openai_embedding_dialect, openai_response_dialect;

const char *openai_finish(enum service_finish f);
void openai_stream_error(struct reply *r, enum status st, const struct err *why);

void openai_chat(struct service *s, struct http_request *r);
void openai_completions(struct service *s, struct http_request *r);
void openai_embeddings(struct service *s, struct http_request *r);
void openai_responses(struct service *s, struct http_request *r);
void openai_response_show(struct service *s, struct http_request *r);
void openai_response_forget(struct service *s, struct http_request *r);
void openai_response_cancel(struct service *s, struct http_request *r);
void openai_response_count(struct service *s, struct http_request *r);
/* What is remembered of a response, or known of one that is under way: an object of it, and of the
 * items of its conversation. NULL: nothing (any more), or it is another owner's (http_key()). */
json_t *openai_recall(struct service *s, const char *id, int owner);
bool openai_is_under_way(const json_t *response);

/* ---- requests ---------------------------------------------------------------------------- */

/* Reads the body and lets `go` answer it; what fails before or in it (p->st) is refused. */
void openai_handle(struct service *s, struct http_request *http,
                   void (*go)(struct service *s, struct http_request *http, struct params *p));

/* How a chat or a completion is to be streamed. The state of their replies. */
struct openai_stream {
    bool on, include_usage;
};
/* stream and stream_options.include_usage. */
void openai_param_stream(struct params *p, struct openai_stream *stream);
/* chat_template_kwargs, and how hard to think (NULL: not said), which is a variable of some
 * templates; "none" is not to think at all. Kept alive by the body. */
void openai_param_extra(struct params *p, const char *effort, struct service_request *r);

/* ---- replies ----------------------------------------------------------------------------- */

/* What every object of a chat or a completion begins with; choices is taken over. */
json_t *openai_frame(const struct reply *r, const char *id_prefix, const char *object,
                     json_t *choices);
json_t *openai_usage(const struct reply *r);
/* The end of a stream: the usage, if asked for, in `frame` (taken over), and the mark. */
void openai_stream_end(struct reply *r, json_t *frame);

/* The logprobs of a choice's tokens: stored until they are taken with the text that they belong
 * to, as an array (NULL: none), or dropped. */
void openai_keep_logprob(struct reply_choice *c, const struct service_event *ev);
json_t *openai_take_logprobs(struct reply_choice *c);
/* Keeps those of the content, whatever the event: for the text that comes with it, if that is
 * streamed, otherwise in c->content_logprobs. */
void openai_note_logprobs(const struct reply *r, struct reply_choice *c,
                          const struct service_event *ev);

#endif
