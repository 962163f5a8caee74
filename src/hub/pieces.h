/* pieces.h: downloads a large file over several connections, in pieces.
 *
 * One connection does not fill a fast line. Each of several asks for the next piece, and what has
 * come is handed on in the file's order. So what is on the disk is always the file's beginning,
 * and can be continued by whoever comes next. What is still in memory is lost with the process:
 * HUB_PIECE_BYTES for each connection, and as much again. */
#ifndef LOCKSTEP_HUB_PIECES_H
#define LOCKSTEP_HUB_PIECES_H

#include "hub/request.h"

#define HUB_PIECE_BYTES ((size_t)16 << 20)

/* hub_download() over settings->n_connections connections of its own; over c where less than four
 * pieces are missing, or the host sends no parts of a file. Errors are those of the first piece
 * that failed. settings->go_on is asked. */
enum status hub_download_pieces(struct hub_connection *c, const struct hub_settings *settings,
                                struct hub_download *d, struct err *err);

#endif
