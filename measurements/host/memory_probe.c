/* Memory bandwidth and load latency; compiled and started by memory_probe.py.
 *
 *   memory_probe bandwidth ARRAY_BYTES SECONDS CPU[,CPU...]
 *   memory_probe latency BUFFER_BYTES LINE_BYTES base|huge SECONDS CPU
 *
 * Prints a line a kernel, its name and the seconds of every repeat ("chase": of one load), and
 * the share of the memory that huge pages back, -1 where the kernel does not say.
 * Exit 2: wrong arguments, 3: no memory, 4: the kernels' results are wrong.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define MOST_CPUS 4096
#define LEAST_ROUNDS 3
#define MOST_ROUNDS 100
#define CHASES 5
#define WARM_UP_LOADS 20000
#define SCALAR 3.0

enum { COPY, SCALE, ADD, TRIAD, KERNELS };
static const char *const names[KERNELS] = {"copy", "scale", "add", "triad"};

static void give_up(int code, const char *why) {
    fprintf(stderr, "memory_probe: %s\n", why);
    exit(code);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_on(int cpu) {
    cpu_set_t *set = CPU_ALLOC(MOST_CPUS);
    const size_t size = CPU_ALLOC_SIZE(MOST_CPUS);
    if (set == NULL) give_up(3, "no memory");
    CPU_ZERO_S(size, set);
    CPU_SET_S((size_t)cpu, size, set);
    /* Where it is refused the scheduler chooses, among the CPUs that are allowed. */
    sched_setaffinity(0, size, set);
    CPU_FREE(set);
}

/* Memory that nothing has touched yet, at a huge page's border. */
static void *fresh_memory(size_t bytes, int advice) {
    const size_t room = bytes + HUGE_PAGE;
    char *start = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) give_up(3, "no memory");
    start += (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    madvise(start, bytes, advice);
    return start;
}

/* Share of the mapping at `start` that huge pages back; -1 where the kernel does not say. */
static double huge_share(const void *start, size_t bytes) {
    char line[512];
    int inside = 0;
    uint64_t kilobytes = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    if (smaps == NULL) return -1.0;
    while (fgets(line, sizeof line, smaps) != NULL) {
        uintptr_t from, to;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            inside = from < (uintptr_t)start + bytes && to > (uintptr_t)start;
        else if (inside && sscanf(line, "AnonHugePages: %" SCNu64, &kilobytes) == 1)
            break;
    }
    fclose(smaps);
    const double share = 1024.0 * (double)kilobytes / (double)bytes;
    return share < 1.0 ? share : 1.0;
}

/* ---- bandwidth ---- */

static double *a, *b, *c;
static size_t elements;
static int cpus[MOST_CPUS], threads;
static double budget_s, until, seconds[KERNELS][MOST_ROUNDS];
static int rounds, going = 1;
static pthread_barrier_t barrier;

typedef void kernel(double *restrict to, const double *restrict x, const double *restrict y,
                    size_t n);

__attribute__((noinline)) static void copy(double *restrict to, const double *restrict x,
                                           const double *restrict y, size_t n) {
    (void)y;
    for (size_t i = 0; i < n; i++) to[i] = x[i];
}

__attribute__((noinline)) static void scale(double *restrict to, const double *restrict x,
                                            const double *restrict y, size_t n) {
    (void)y;
    for (size_t i = 0; i < n; i++) to[i] = SCALAR * x[i];
}

__attribute__((noinline)) static void add(double *restrict to, const double *restrict x,
                                          const double *restrict y, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = x[i] + y[i];
}

__attribute__((noinline)) static void triad(double *restrict to, const double *restrict x,
                                            const double *restrict y, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = x[i] + SCALAR * y[i];
}

static void together(int thread, int name, kernel *run, double *to, const double *x,
                     const double *y, size_t n) {
    double start = 0.0;
    pthread_barrier_wait(&barrier);
    if (thread == 0) start = now();
    run(to, x, y, n);
    pthread_barrier_wait(&barrier);
    if (thread == 0) seconds[name][rounds] = now() - start;
}

static void *part(void *number) {
    const int thread = (int)(intptr_t)number;
    const size_t first = elements * (size_t)thread / (size_t)threads;
    const size_t n = elements * ((size_t)thread + 1) / (size_t)threads - first;
    double *const pa = a + first, *const pb = b + first, *const pc = c + first;
    run_on(cpus[thread]);
    /* Whoever works on a page touches it first: it then lies at that CPU's memory node. */
    for (size_t i = 0; i < n; i++) {
        pa[i] = 1.0;
        pb[i] = 2.0;
        pc[i] = 0.0;
    }
    pthread_barrier_wait(&barrier);
    if (thread == 0) until = now() + budget_s;
    while (going) {
        together(thread, COPY, copy, pc, pa, pa, n);
        together(thread, SCALE, scale, pb, pc, pc, n);
        together(thread, ADD, add, pc, pa, pb, n);
        together(thread, TRIAD, triad, pa, pb, pc, n);
        if (thread == 0) {
            rounds++;
            going = rounds < LEAST_ROUNDS || (rounds < MOST_ROUNDS && now() < until);
        }
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

/* Kernels that a compiler left out, or did wrongly, would be fast. */
static void check_results(void) {
    double x = 1.0, y = 2.0, z = 0.0;
    for (int i = 0; i < rounds; i++) {
        z = x;
        y = SCALAR * z;
        z = x + y;
        x = y + SCALAR * z;
    }
    const size_t at[] = {0, elements / 2, elements - 1};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        const double off = a[at[i]] / x - 1.0;
        if (!(off < 1e-9 && off > -1e-9)) give_up(4, "the kernels' results are wrong");
    }
}

static void bandwidth(size_t bytes, double budget) {
    pthread_t workers[MOST_CPUS];
    budget_s = budget;
    elements = bytes / sizeof(double);
    if (elements < (size_t)threads) give_up(2, "array too small");
    a = fresh_memory(bytes, MADV_HUGEPAGE);
    b = fresh_memory(bytes, MADV_HUGEPAGE);
    c = fresh_memory(bytes, MADV_HUGEPAGE);
    if (pthread_barrier_init(&barrier, NULL, (unsigned)threads) != 0) give_up(3, "no memory");
    for (int i = 1; i < threads; i++)
        if (pthread_create(&workers[i], NULL, part, (void *)(intptr_t)i) != 0)
            give_up(3, "no more threads");
    part((void *)0);
    for (int i = 1; i < threads; i++) pthread_join(workers[i], NULL);
    check_results();
    for (int name = 0; name < KERNELS; name++) {
        printf("%s", names[name]);
        /* The first round is slower: it fills caches and wakes clocks. */
        for (int i = 1; i < rounds; i++) printf(" %.9e", seconds[name][i]);
        printf("\n");
    }
    printf("huge_pages %.4f\n", huge_share(a, bytes));
}

/* ---- latency ---- */

static uint64_t random_state = 0x9e3779b97f4a7c15u;

/* xorshift64*: Vigna 2016, https://doi.org/10.1145/2845077 */
static uint32_t random_below(uint32_t bound) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    const uint64_t drawn = (random_state * 0x2545f4914f6cdd1du) >> 32;
    return (uint32_t)(drawn * bound >> 32);
}

/* One cycle through all lines, every one as likely: Sattolo 1986. */
static void link_lines(char *buffer, uint32_t lines, size_t line) {
    uint32_t *next = malloc((size_t)lines * sizeof *next);
    if (next == NULL) give_up(3, "no memory");
    for (uint32_t i = 0; i < lines; i++) next[i] = i;
    for (uint32_t i = lines - 1; i > 0; i--) {
        const uint32_t j = random_below(i), kept = next[i];
        next[i] = next[j];
        next[j] = kept;
    }
    for (uint32_t i = 0; i < lines; i++) *(void **)(buffer + i * line) = buffer + next[i] * line;
    free(next);
}

/* Every load needs the one before it: none overlaps another. */
static void *chase(void *at, uint64_t loads) {
    for (uint64_t i = 0; i < loads; i += 8) {
        at = *(void **)at;
        at = *(void **)at;
        at = *(void **)at;
        at = *(void **)at;
        at = *(void **)at;
        at = *(void **)at;
        at = *(void **)at;
        at = *(void **)at;
    }
    return at;
}

static void latency(size_t bytes, size_t line, int advice, double budget, int cpu) {
    const size_t lines = bytes / line;
    if (lines < 2 || lines > UINT32_MAX) give_up(2, "no such buffer");
    run_on(cpu);
    char *buffer = fresh_memory(bytes, advice);
    link_lines(buffer, (uint32_t)lines, line);
    double start = now();
    void *volatile at = chase(buffer, WARM_UP_LOADS);
    start = now();
    at = chase(at, WARM_UP_LOADS);
    const double one = (now() - start) / WARM_UP_LOADS;
    const uint64_t loads = ((uint64_t)(budget / CHASES / one) + 8) / 8 * 8;
    printf("chase");
    for (int i = 0; i < CHASES; i++) {
        start = now();
        at = chase(at, loads);
        printf(" %.9e", (now() - start) / (double)loads);
    }
    printf("\nhuge_pages %.4f\n", huge_share(buffer, bytes));
}

static void read_cpus(char *list) {
    for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
        if (threads == MOST_CPUS) give_up(2, "too many CPUs");
        cpus[threads++] = atoi(word);
    }
    if (threads == 0) give_up(2, "no CPU");
}

int main(int count, char **words) {
    if (count == 5 && strcmp(words[1], "bandwidth") == 0) {
        read_cpus(words[4]);
        bandwidth(strtoull(words[2], NULL, 10), atof(words[3]));
    } else if (count == 7 && strcmp(words[1], "latency") == 0) {
        const int advice = strcmp(words[4], "huge") == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
        read_cpus(words[6]);
        latency(strtoull(words[2], NULL, 10), strtoull(words[3], NULL, 10), advice,
                atof(words[5]), cpus[0]);
    } else {
        give_up(2, "see the head of memory_probe.c");
    }
    return 0;
}
