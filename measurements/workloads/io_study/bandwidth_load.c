/* A load on memory bandwidth, at a rate; compiled and started by workloads/io_study.
 *
 *   bandwidth_load ARRAY_BYTES RATE CPU[,CPU...]
 *
 * A thread a CPU runs STREAM's triad over three arrays of its own, of ARRAY_BYTES each, at RATE
 * bytes a second (0: as fast as it can), until it is ended or its parent is. Ten times a second a
 * line says when, by CLOCK_MONOTONIC, and how many bytes all threads have read and written.
 * Exit 2: wrong arguments, 3: no memory.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#define MOST_CPUS 4096
#define SCALAR 3.0
/* Elements between two looks at the clock: 3 times 64 KiB, some 10 us. */
#define BLOCK 8192
/* What it is behind by more than this is not made up for (s). */
#define LATEST 0.2
#define TOLD_NS 100000000L

static size_t elements;
static double rate;
static int cpus[MOST_CPUS], threads;
static atomic_uint_fast64_t moved;

static void give_up(int code, const char *why) {
    fprintf(stderr, "bandwidth_load: %s\n", why);
    exit(code);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_until(double due) {
    const time_t whole = (time_t)due;
    const struct timespec t = {whole, (long)(1e9 * (due - (double)whole))};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static double *fresh_array(void) {
    const size_t bytes = elements * sizeof(double);
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) give_up(3, "no memory");
    madvise(start, bytes, MADV_HUGEPAGE);
    return start;
}

__attribute__((noinline)) static void triad(double *restrict to, const double *restrict x,
                                            const double *restrict y, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = x[i] + SCALAR * y[i];
}

static void run_on(int cpu) {
    cpu_set_t *set = CPU_ALLOC(MOST_CPUS);
    const size_t size = CPU_ALLOC_SIZE(MOST_CPUS);
    if (set == NULL) give_up(3, "no memory");
    CPU_ZERO_S(size, set);
    CPU_SET_S((size_t)cpu, size, set);
    if (sched_setaffinity(0, size, set) != 0) give_up(2, "a CPU that may not be used");
    CPU_FREE(set);
}

static void *steal(void *number) {
    run_on(cpus[(intptr_t)number]);
    /* After the thread is where it belongs, so that its memory is near. */
    double *const a = fresh_array(), *const b = fresh_array(), *const c = fresh_array();
    for (size_t i = 0; i < elements; i++) {
        a[i] = 0.0;
        b[i] = 1.0;
        c[i] = 2.0;
    }
    double due = now();
    for (size_t first = 0;; first = first + BLOCK < elements ? first + BLOCK : 0) {
        const size_t n = elements - first < BLOCK ? elements - first : BLOCK;
        triad(a + first, b + first, c + first, n);
        atomic_fetch_add(&moved, 3 * n * sizeof(double));
        if (rate > 0.0) {
            const double at = now();
            due += 3.0 * (double)(n * sizeof(double)) / rate;
            if (due < at - LATEST) due = at;
            /* A sleep costs more than a block takes: several at once. */
            if (due > at + 1e-3) sleep_until(due);
        }
    }
    return NULL;
}

int main(int count, char **words) {
    if (count != 4) give_up(2, "see the head of bandwidth_load.c");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    elements = strtoull(words[1], NULL, 10) / sizeof(double);
    rate = atof(words[2]);
    for (char *word = strtok(words[3], ","); word != NULL; word = strtok(NULL, ",")) {
        if (threads == MOST_CPUS) give_up(2, "too many CPUs");
        cpus[threads++] = atoi(word);
    }
    if (elements < BLOCK || rate < 0.0 || threads == 0) give_up(2, "nothing to do");
    rate /= threads;
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, steal, (void *)(intptr_t)i) != 0)
            give_up(3, "no more threads");
    }
    const struct timespec pause = {0, TOLD_NS};
    for (;;) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        printf("%.6f %" PRIuFAST64 "\n", now(), atomic_load(&moved));
        fflush(stdout);
    }
}
