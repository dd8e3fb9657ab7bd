/*
 * Stands in for the kernel's /dev/ipmi0 in the processes that load it (LD_PRELOAD): its ioctl
 * calls, with a BMC behind them that knows one command, DCMI's Get Power Reading.
 *
 * Watts are the number in the file that IPMI_DEVICE_WATTS names; without a number there, the BMC
 * never answers, and the file that IPMI_DEVICE_SILENT names says so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ipmi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { GROUP_NETFN = 0x2c, GET_POWER_READING = 0x02, GROUP = 0xdc, INVALID_COMMAND = 0xc1 };

static int device = -1;
static struct {
    long msgid;
    unsigned char netfn, cmd, group;
} asked;

static int open_device(const char *path, int flags, mode_t mode, const char *name)
{
    int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, name);

    if (strcmp(path, "/dev/ipmi0") != 0)
        return next(path, flags, mode);
    /* A file can be sought in and waited for, as the device can. */
    device = memfd_create("ipmi0", MFD_CLOEXEC);
    return device;
}

#define OPENER(name)                                        \
    int name(const char *path, int flags, ...)              \
    {                                                       \
        va_list rest;                                       \
        va_start(rest, flags);                              \
        mode_t mode = va_arg(rest, mode_t);                 \
        va_end(rest);                                       \
        return open_device(path, flags, mode, #name);       \
    }

OPENER(open)
OPENER(open64)

static int receive(struct ipmi_recv *recv)
{
    unsigned char *data = recv->msg.data;
    unsigned watts = 0;
    FILE *file = fopen(getenv("IPMI_DEVICE_WATTS"), "r");

    if (!file || fscanf(file, "%u", &watts) != 1) {
        close(creat(getenv("IPMI_DEVICE_SILENT"), 0600));
        for (;;)
            pause();
    }
    fclose(file);
    recv->recv_type = IPMI_RESPONSE_RECV_TYPE;
    recv->msgid = asked.msgid;
    recv->msg.netfn = asked.netfn | 1;
    recv->msg.cmd = asked.cmd;
    if (asked.netfn != GROUP_NETFN || asked.cmd != GET_POWER_READING || asked.group != GROUP) {
        data[0] = INVALID_COMMAND;
        recv->msg.data_len = 1;
        return 0;
    }
    memset(data, 0, 19);
    data[1] = GROUP;
    for (int i = 2; i < 10; i += 2) {
        data[i] = watts & 0xff;
        data[i + 1] = watts >> 8;
    }
    for (int i = 0; i < 4; i++)
        data[10 + i] = (unsigned long)time(NULL) >> 8 * i & 0xff;
    data[14] = 1000 & 0xff;
    data[15] = 1000 >> 8;
    data[18] = 0x40;
    recv->msg.data_len = 19;
    return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    int (*next)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);

    if (fd != device || device < 0 || _IOC_TYPE(request) != IPMI_IOC_MAGIC)
        return next(fd, request, argument);
    if (request == IPMICTL_SEND_COMMAND) {
        const struct ipmi_req *req = argument;
        asked.msgid = req->msgid;
        asked.netfn = req->msg.netfn;
        asked.cmd = req->msg.cmd;
        asked.group = req->msg.data_len ? req->msg.data[0] : 0;
        return 0;
    }
    if (request == IPMICTL_RECEIVE_MSG || request == IPMICTL_RECEIVE_MSG_TRUNC)
        return receive(argument);
    return 0;
}
