/* Load on one memcached server: requests at a fixed rate, whether or not it keeps up, or as fast
 * as each connection is answered.
 *
 * paced_load HOST PORT CONNECTIONS RATE SECONDS GET_SHARE KEYS_PER_REQUEST KEYS KEY_BYTES
 *            VALUE_BYTES SEED
 *
 * RATE is requests a second over all connections, with exponential gaps between them (a Poisson
 * process); 0 sends the next request on a connection when the last one is answered. A latency
 * counts from the moment at which the request was due, so that a server that stalls is charged for
 * all that had to wait. How late requests were sent is counted too: that is this program's fault.
 *
 * Prints lines of a name and its figures:
 *   start_s, elapsed_s, requests, hits, misses, stored, failed, unanswered, sum_ns, min_ns, max_ns
 *   latency OVER_NS UPTO_NS COUNT        lateness OVER_NS UPTO_NS COUNT
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { PARTS = 64, SHIFT = 6, CELLS = 64 * PARTS, LINE = 512, INPUT = 1 << 18 };
static const double DRAIN_S = 1.0;

struct request { uint64_t due; };

struct connection {
    int fd;
    int waits_to_write;
    struct request *ring;             /* sent and not answered, a power of two long */
    uint64_t head, tail, size;
    char *out;
    size_t out_begin, out_end, out_size;
    char line[LINE];
    size_t line_length;
    uint64_t skip;                    /* bytes of a value still to come */
};

static uint64_t latency[CELLS], lateness[CELLS];
static uint64_t requests, hits, asked, stored, failed, outstanding, sum_ns, min_ns = UINT64_MAX, max_ns;
static uint64_t random_state;
static double get_share;
static int keys_per_request, key_bytes;
static uint64_t keys;
static char *value;
static size_t value_bytes;
static int epoll_fd;

static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t next_random(void)     /* xorshift64* (Vigna 2016) */
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 2685821657736338717u;
}

static double uniform(void) { return ((double)(next_random() >> 11) + 0.5) / 9007199254740992.0; }

static size_t cell_of(uint64_t ns)
{
    if (ns < PARTS) return (size_t)ns;
    int top = 63 - __builtin_clzll(ns);
    return (size_t)(top - SHIFT + 1) * PARTS + (size_t)((ns >> (top - SHIFT)) & (PARTS - 1));
}

static uint64_t cell_begin(size_t cell)
{
    if (cell < PARTS) return cell;
    size_t row = cell / PARTS;
    return (uint64_t)(PARTS + cell % PARTS) << (row - 1);
}

static void print_cells(const char *name, const uint64_t *counts)
{
    for (size_t i = 0; i < CELLS; i++)
        if (counts[i]) {
            uint64_t begin = cell_begin(i), end = cell_begin(i + 1) - 1;
            printf("%s %llu %llu %llu\n", name, (unsigned long long)(begin ? begin - 1 : 0),
                   (unsigned long long)end, (unsigned long long)counts[i]);
        }
}

static void watch(struct connection *c, int writing)
{
    if (c->waits_to_write == writing) return;
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0u), .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event)) die("epoll_ctl: %s", strerror(errno));
    c->waits_to_write = writing;
}

static void flush_out(struct connection *c)
{
    while (c->out_begin < c->out_end) {
        ssize_t sent = send(c->fd, c->out + c->out_begin, c->out_end - c->out_begin, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) { watch(c, 1); return; }
            die("the server closed a connection: %s", strerror(errno));
        }
        c->out_begin += (size_t)sent;
    }
    c->out_begin = c->out_end = 0;
    watch(c, 0);
}

static char *room(struct connection *c, size_t bytes)
{
    if (c->out_end + bytes > c->out_size) {
        c->out_size = 2 * (c->out_end + bytes);
        if (!(c->out = realloc(c->out, c->out_size))) die("no memory");
    }
    return c->out + c->out_end;
}

static void put_key(struct connection *c)
{
    c->out_end += (size_t)sprintf(room(c, 256), "%0*llu", key_bytes,
                                  (unsigned long long)(next_random() % keys));
}

static void put_text(struct connection *c, const char *text, size_t length)
{
    memcpy(room(c, length), text, length);
    c->out_end += length;
}

static void issue(struct connection *c, uint64_t due)
{
    if (c->tail - c->head == c->size) {
        uint64_t larger = c->size ? 2 * c->size : 64;
        struct request *ring = malloc(larger * sizeof *ring);
        if (!ring) die("no memory");
        for (uint64_t i = c->head; i < c->tail; i++) ring[i & (larger - 1)] = c->ring[i & (c->size - 1)];
        free(c->ring);
        c->ring = ring;
        c->size = larger;
    }
    c->ring[c->tail++ & (c->size - 1)].due = due;
    if (uniform() < get_share) {
        put_text(c, "get", 3);
        for (int i = 0; i < keys_per_request; i++) {
            put_text(c, " ", 1);
            put_key(c);
        }
        put_text(c, "\r\n", 2);
        asked += (uint64_t)keys_per_request;
    } else {
        put_text(c, "set ", 4);
        put_key(c);
        c->out_end += (size_t)sprintf(room(c, 64), " 0 0 %zu\r\n", value_bytes);
        put_text(c, value, value_bytes);
        put_text(c, "\r\n", 2);
    }
    outstanding++;
    flush_out(c);
}

static void answered(struct connection *c, uint64_t now)
{
    if (c->head == c->tail) die("the server answered what it was not asked: %s", c->line);
    uint64_t due = c->ring[c->head++ & (c->size - 1)].due, took = now > due ? now - due : 0;
    latency[cell_of(took)]++;
    sum_ns += took;
    if (took < min_ns) min_ns = took;
    if (took > max_ns) max_ns = took;
    requests++;
    outstanding--;
}

/* Takes a whole line of a reply; returns whether it was a request's last. */
static int take_line(struct connection *c)
{
    if (!strncmp(c->line, "VALUE ", 6)) {
        char *length = strrchr(c->line, ' ');
        c->skip = strtoull(length + 1, NULL, 10) + 2;
        hits++;
        return 0;
    }
    if (!strcmp(c->line, "STORED")) stored++;
    else if (strcmp(c->line, "END")) failed++;
    return 1;
}

static int take_input(struct connection *c, const char *data, size_t length, uint64_t now)
{
    int complete = 0;
    while (length) {
        if (c->skip) {
            size_t part = c->skip < length ? (size_t)c->skip : length;
            c->skip -= part;
            data += part;
            length -= part;
            continue;
        }
        char byte = *data++;
        length--;
        if (byte != '\n') {
            if (byte != '\r' && c->line_length < LINE - 1) c->line[c->line_length++] = byte;
            continue;
        }
        c->line[c->line_length] = 0;
        c->line_length = 0;
        if (take_line(c)) {
            answered(c, now);
            complete++;
        }
    }
    return complete;
}

static int receive(struct connection *c)
{
    static char input[INPUT];
    int complete = 0;
    for (;;) {
        ssize_t got = recv(c->fd, input, sizeof input, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return complete;
        if (got <= 0) die("the server closed a connection");
        complete += take_input(c, input, (size_t)got, now_ns());
        if ((size_t)got < sizeof input) return complete;
    }
}

static int connect_to(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int code = getaddrinfo(host, port, &hints, &found), fd = -1, one = 1;
    if (code) die("%s: %s", host, gai_strerror(code));
    for (struct addrinfo *a = found; a; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen)) break;
        if (fd >= 0) close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    if (fd < 0) die("%s:%s: no connection: %s", host, port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fcntl(fd, F_SETFL, O_NONBLOCK)) die("fcntl: %s", strerror(errno));
    return fd;
}

static void set_timer(int timer, uint64_t at)
{
    struct itimerspec when = {.it_value = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)}};
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL)) die("timer: %s", strerror(errno));
}

int main(int count, char **given)
{
    if (count != 12) die("paced_load takes 11 arguments");
    int connections = atoi(given[3]);
    double rate = atof(given[4]), seconds = atof(given[5]);
    get_share = atof(given[6]);
    keys_per_request = atoi(given[7]);
    keys = strtoull(given[8], NULL, 10);
    key_bytes = atoi(given[9]);
    value_bytes = strtoull(given[10], NULL, 10);
    random_state = strtoull(given[11], NULL, 10) * 2u + 88172645463325252u;
    if (!(value = malloc(value_bytes + 1))) die("no memory");
    memset(value, 'x', value_bytes);
    prctl(PR_SET_TIMERSLACK, 1ul);

    epoll_fd = epoll_create1(0);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct connection *all = calloc((size_t)connections, sizeof *all);
    if (epoll_fd < 0 || timer < 0 || !all) die("cannot set up: %s", strerror(errno));
    struct epoll_event of_timer = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer, &of_timer);
    for (int i = 0; i < connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        all[i].fd = connect_to(given[1], given[2]);
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, all[i].fd, &event)) die("epoll: %s", strerror(errno));
    }

    uint64_t begin = now_ns(), end = begin + (uint64_t)(seconds * 1e9), turn = 0;
    uint64_t last = end + (uint64_t)(DRAIN_S * 1e9), finished = end;
    double due = (double)begin;
    if (rate > 0)
        due -= log(uniform()) / rate * 1e9;
    else
        for (int i = 0; i < connections; i++) issue(&all[i], now_ns());
    for (;;) {
        uint64_t now = now_ns();
        /* Answers are read in between, however far behind the sending is. */
        for (int burst = 0; burst < 32 && rate > 0 && due <= (double)now && due < (double)end;
             burst++) {
            lateness[cell_of(now - (uint64_t)due)]++;
            issue(&all[turn++ % (uint64_t)connections], (uint64_t)due);
            due -= log(uniform()) / rate * 1e9;
            now = now_ns();
        }
        if (now >= end && (!outstanding || now >= last)) { finished = now; break; }
        int waits = !(rate > 0 && due <= (double)now && due < (double)end);
        if (waits) {
            double next = now >= end ? (double)last : rate > 0 && due < (double)end ? due : (double)end;
            set_timer(timer, (uint64_t)next);
        }
        struct epoll_event ready[256];
        int found = epoll_wait(epoll_fd, ready, 256, waits ? -1 : 0);
        for (int i = 0; i < found; i++) {
            struct connection *c = ready[i].data.ptr;
            if (!c) {
                uint64_t ticks;
                if (read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN) die("timer failed");
                continue;
            }
            if (ready[i].events & EPOLLOUT) flush_out(c);
            int complete = receive(c);
            if (rate <= 0)
                for (; complete > 0 && now_ns() < end; complete--) issue(c, now_ns());
        }
    }
    printf("start_s %.9f\nelapsed_s %.9f\nrequests %llu\n", (double)begin / 1e9,
           (double)((finished < last ? end : finished) - begin) / 1e9, (unsigned long long)requests);
    printf("hits %llu\nmisses %llu\nstored %llu\nfailed %llu\nunanswered %llu\n",
           (unsigned long long)hits, (unsigned long long)(asked - hits), (unsigned long long)stored,
           (unsigned long long)failed, (unsigned long long)outstanding);
    if (requests)
        printf("sum_ns %llu\nmin_ns %llu\nmax_ns %llu\n", (unsigned long long)sum_ns,
               (unsigned long long)min_ns, (unsigned long long)max_ns);
    print_cells("latency", latency);
    print_cells("lateness", lateness);
    return 0;
}
