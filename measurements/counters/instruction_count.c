/* Plugin of QEMU's user mode: counts the instructions that a program executes.
 *
 * Arguments: out=FILE, to which each process appends a line with its number, its count, and "exit"
 * or, when it is about to become another program, "exec": QEMU does not follow it there. QEMU takes
 * plugins of some versions of its interface only; API_VERSION is set when this is compiled. The
 * declarations are those of qemu-plugin.h that all of them share.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef API_VERSION
#define API_VERSION 1
#endif

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
enum no_registers { NO_REGISTERS };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t,
                                           void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *),
                                          enum no_registers, void *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t,
                                          void (*)(qemu_plugin_id_t, unsigned, int64_t, uint64_t,
                                                   uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                                   uint64_t, uint64_t));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);

__attribute__((visibility("default"))) int qemu_plugin_version = API_VERSION;

static uint64_t executed;
static char out[4096];

static void on_execution(unsigned cpu, void *instructions)
{
    (void)cpu;
    __atomic_fetch_add(&executed, (uint64_t)(uintptr_t)instructions, __ATOMIC_RELAXED);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    void *instructions = (void *)(uintptr_t)qemu_plugin_tb_n_insns(block);
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_execution, NO_REGISTERS, instructions);
}

static void report(const char *event)
{
    int file = open(out, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0) return;
    dprintf(file, "%ld %llu %s\n", (long)getpid(), (unsigned long long)executed, event);
    close(file);
}

static void on_syscall(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t a, uint64_t b,
                       uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    (void)id, (void)cpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number == SYS_execve || number == SYS_execveat) report("exec");
}

static void on_exit(qemu_plugin_id_t id, void *unused)
{
    (void)id, (void)unused;
    report("exit");
}

/* What the parent executed is in the parent's line. */
static void in_child(void) { executed = 0; }

__attribute__((visibility("default"))) int
qemu_plugin_install(qemu_plugin_id_t id, const void *info, int count, char **arguments)
{
    (void)info;
    for (int i = 0; i < count; i++)
        if (!strncmp(arguments[i], "out=", 4))
            snprintf(out, sizeof out, "%s", arguments[i] + 4);
    if (!out[0]) return -1;
    pthread_atfork(NULL, NULL, in_child);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    qemu_plugin_register_atexit_cb(id, on_exit, NULL);
    return 0;
}
