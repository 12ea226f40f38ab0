/* `agent receive`: a file in proven chunks over a forwarded port, taken up where it broke off.
 * It is FILE while it comes and TARGET when it is whole.
 *
 * Prints {"schema":1,"port":N,"token":HEX,"chunks":N} when it listens, on loopback only, and goes
 * on detached. Where the storage is full its failure has "missing_bytes":N, null with a quota. It
 * serves one connection and ends with it, or when nothing comes for --idle seconds; file and journal
 * stay for the next one. From the token to the end it locks the file.
 *
 * The peer sends the token's 64 digits. Numbers are big-endian, digests 32 bytes.
 *   agent: 'G' u32 index, digest    this chunk is here and was read again just now; one for each
 *          'B' u32 index            this one was here, and is damaged now
 *          'R'                      that was all
 *          'E' u32 errno            as below; EAGAIN: another fills the file, EEXIST: it is whole,
 *                                   ESTALE: another controller has the board
 *   peer:  'C' u32 index, u32 length, digest, the bytes
 *   agent: 'A' u32 index            written; the digest was that of the bytes
 *          'B' u32 index            the bytes have another digest: send them again
 *          'E' u32 errno            the board cannot write; the end
 *   peer:  'F'
 *   agent: 'D'                      all chunks are durable, the file is TARGET; the end
 *          'B' u32 index            this one is not there
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "agent.h"
#include "failure.h"
#include "json.h"
#include "receive.h"
#include "sha256.h"
#include "util.h"

#define RECEIVE_BUFFER_BYTES (4 << 20)

struct receiver {
    struct partial partial;
    struct lease_hold *lease;
    int listener, peer, idle_ms;
    char token[TOKEN_DIGITS + 1];
};

/* Read exactly `length` bytes; false at the peer's end, an error, or after too long a silence. */
static bool take(int fd, void *data, size_t length)
{
    unsigned char *next = data;
    while (length > 0) {
        ssize_t got = recv(fd, next, length, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        next += got;
        length -= (size_t)got;
    }
    return true;
}

/* False at the peer's end, an error, or when it takes nothing for too long. */
static bool give(int fd, const void *data, size_t length)
{
    const unsigned char *next = data;
    while (length > 0) {
        ssize_t sent = send(fd, next, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        next += sent;
        length -= (size_t)sent;
    }
    return true;
}

static bool answer(const struct receiver *receiver, char kind, uint32_t number)
{
    unsigned char message[5] = { (unsigned char)kind };
    number = htonl(number);
    memcpy(message + 1, &number, sizeof number);
    return give(receiver->peer, message, sizeof message);
}

static bool tell_what_is_here(struct receiver *receiver)
{
    struct partial *partial = &receiver->partial;
    for (uint64_t index = 0; index < partial->count; index++) {
        if (!partial->journalled[index])
            continue;
        /* Each is reported: the peer must not take the time that reading needs for a stall. */
        const bool good = partial_prove(partial, index);
        if (!answer(receiver, good ? 'G' : 'B', (uint32_t)index) ||
            (good && !give(receiver->peer, partial->digests + index * DIGEST_BYTES, DIGEST_BYTES)))
            return false;
    }
    return give(receiver->peer, "R", 1);
}

static bool cannot_write(const struct receiver *receiver)
{
    answer(receiver, 'E', (uint32_t)errno);
    return false;
}

/* Under the lease, false with errno set: ESTALE when another controller has come. */
static bool write_piece(struct receiver *receiver, uint32_t index, size_t at, const void *piece,
                        size_t length)
{
    errno = lease_begin(receiver->lease);
    const bool good = !errno && partial_write(&receiver->partial, index, at, piece, length);
    lease_leave(receiver->lease);
    return good;
}

static bool note_chunk(struct receiver *receiver, uint32_t index,
                       const unsigned char digest[DIGEST_BYTES])
{
    errno = lease_begin(receiver->lease);
    const bool good = !errno && partial_note(&receiver->partial, index, digest);
    lease_leave(receiver->lease);
    return good;
}

/* One chunk; false ends the conversation. */
static bool take_chunk(struct receiver *receiver)
{
    struct partial *partial = &receiver->partial;
    uint32_t head[2];
    unsigned char announced[DIGEST_BYTES], found[DIGEST_BYTES], piece[PIECE_BYTES];
    if (!take(receiver->peer, head, sizeof head) ||
        !take(receiver->peer, announced, sizeof announced))
        return false;
    uint32_t index = ntohl(head[0]), length = ntohl(head[1]);
    if (index >= partial->count || length != partial_length(partial, index))
        return false;
    struct sha256 sha;
    sha256_start(&sha);
    for (size_t done = 0; done < length;) {
        size_t next = length - done < sizeof piece ? length - done : sizeof piece;
        if (!take(receiver->peer, piece, next))
            return false;
        sha256_add(&sha, piece, next);
        if (!write_piece(receiver, index, done, piece, next))
            return cannot_write(receiver);
        done += next;
    }
    sha256_end(&sha, found);
    if (memcmp(found, announced, sizeof found) != 0)
        return answer(receiver, 'B', index);
    return note_chunk(receiver, index, found) ? answer(receiver, 'A', index)
                                              : cannot_write(receiver);
}

/* False when chunks are missing or nothing could be sent; the conversation continues after 'B'. */
static bool finish(struct receiver *receiver, bool *more)
{
    struct partial *partial = &receiver->partial;
    for (uint64_t index = 0; index < partial->count; index++)
        if (!partial->good[index])
            return *more = answer(receiver, 'B', (uint32_t)index);
    *more = false;
    if (partial_finish(partial, receiver->lease))
        return give(receiver->peer, "D", 1);
    return answer(receiver, 'E', (uint32_t)errno);
}

static void converse(struct receiver *receiver)
{
    bool more = tell_what_is_here(receiver);
    while (more) {
        char kind;
        if (!take(receiver->peer, &kind, 1))
            return;
        if (kind == 'C')
            more = take_chunk(receiver);
        else if (kind == 'F')
            finish(receiver, &more);
        else
            return;
    }
}

/* Ends a conversation whose peer may still be sending: closed at once, the connection would be reset,
 * and our last word lost. */
static void part(int peer)
{
    char scrap[4096];
    shutdown(peer, SHUT_WR);
    while (recv(peer, scrap, sizeof scrap, 0) > 0)
        ;
    close(peer);
}

/* One conversation with a peer that knows the token. A peer that takes nothing is given up after the
 * same time as one that sends nothing: the file would stay locked. */
static void serve(struct receiver *receiver)
{
    const struct timeval patience = { .tv_sec = receiver->idle_ms / 1000,
                                      .tv_usec = receiver->idle_ms % 1000 * 1000 };
    receiver->peer = admit(receiver->listener, receiver->token, receiver->idle_ms);
    close(receiver->listener);
    if (receiver->peer < 0)
        return;
    setsockopt(receiver->peer, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(receiver->peer, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int error = lease_begin(receiver->lease);
    if (!error)
        error = partial_open(&receiver->partial);
    lease_leave(receiver->lease);
    if (error) {
        answer(receiver, 'E', (uint32_t)error);
    } else {
        converse(receiver);
        partial_close(&receiver->partial);
    }
    part(receiver->peer);
}

/* A listening socket on a free port of loopback; -1 with errno set. */
static int listen_on_loopback(uint16_t *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int bytes = RECEIVE_BUFFER_BYTES;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 16) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    *port = ntohs(address.sin_port);
    return fd;
}

/* Keeps nothing of the shell that started it. */
static void detach(void)
{
    setsid();
    signal(SIGHUP, SIG_IGN);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= 2 && null >= 0; fd++)
        dup2(null, fd);
}

static int refuse_for_space(const struct partial *partial, int error)
{
    struct json json = { 0 };
    json_open(&json, '{');
    json_member_int(&json, "schema", 1);
    json_member_string(&json, "error", "no-space");
    json_member_string(&json, "message", reason(error, partial->path));
    json_member_count(&json, "missing_bytes", partial->missing ? (int64_t)partial->missing : -1);
    json_close(&json, '}');
    return json_print(&json, STDOUT_FILENO) ? EXIT_NO_SPACE : EXIT_SYSTEM;
}

static int refuse(const struct partial *partial, int error)
{
    if (error == EWOULDBLOCK)
        return fail(EXIT_BUSY, "busy", "another transfer fills %s", partial->path);
    if (error == EEXIST)
        return fail(EXIT_PUBLISHED, "published", "%s is there", partial->target);
    if (error == ENOMEM)
        return fail(EXIT_SYSTEM, "system", "no memory for %llu chunks",
                    (unsigned long long)partial->count);
    if (error == ENOSPC || error == EDQUOT)
        return refuse_for_space(partial, error);
    return fail(EXIT_DIRECTORY, "directory", "cannot write %s: %s", partial->path,
                strerror(error));
}

/* Serves in a child; ends when the child has left this one's session. -1 with errno set. */
static int serve_detached(struct receiver *receiver)
{
    int left[2];
    if (pipe2(left, O_CLOEXEC) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        close(left[0]);
        detach();
        close(left[1]);
        serve(receiver);
        _exit(0);
    }
    int error = errno;
    close(left[1]);
    /* The program that started this one may end its whole group as soon as it is gone. */
    for (char none; child > 0 && read(left[0], &none, 1) < 0 && errno == EINTR;)
        ;
    close(left[0]);
    errno = error;
    return child < 0 ? -1 : 0;
}

int command_receive(const struct receive_options *options)
{
    struct receiver receiver = { .partial = { .path = options->file,
                                              .target = options->target,
                                              .mode = (unsigned int)options->mode,
                                              .size = options->size,
                                              .chunk = options->chunk_bytes },
                                 .lease = options->lease,
                                 .idle_ms = (int)(options->idle_ns / NS_PER_MS) };
    uint16_t port;
    signal(SIGXFSZ, SIG_IGN); /* EFBIG says it better */
    /* Problems are reported now, and the room is reserved; the lock is taken for the peer. */
    int error = lease_enter(receiver.lease, false);
    if (error)
        return error;
    error = partial_open(&receiver.partial);
    if (error)
        return refuse(&receiver.partial, error);
    partial_close(&receiver.partial);
    lease_leave(receiver.lease);
    receiver.listener = listen_on_loopback(&port);
    if (receiver.listener < 0 || !make_token(receiver.token))
        return fail(EXIT_SYSTEM, "system", "cannot listen: %s", strerror(errno));
    if (serve_detached(&receiver) != 0)
        return fail(EXIT_SYSTEM, "system", "cannot fork: %s", strerror(errno));
    struct json json = { 0 };
    json_open(&json, '{');
    json_member_int(&json, "schema", 1);
    json_member_int(&json, "port", port);
    json_member_string(&json, "token", receiver.token);
    json_member_int(&json, "chunks", (int64_t)receiver.partial.count);
    json_close(&json, '}');
    return json_print(&json, STDOUT_FILENO) ? 0 : EXIT_SYSTEM;
}
