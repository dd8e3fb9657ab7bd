/*
 * DCMI's Get Power Reading for ipmi_sim, whose answers a text file gives.
 *
 * The file holds lines of a name and a number: current, minimum, maximum, average (W), period_ms,
 * stamp (s; 0 for none, -1 for the clock's), state, code (completion code), delay_ms (before the
 * answer), short (1: an answer that is cut off). It is read at every request.
 */
#include <OpenIPMI/lanserv.h>
#include <OpenIPMI/mcserv.h>
#include <OpenIPMI/serv.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { GROUP = 0xdc, GET_POWER_READING = 0x02, INVALID_COMMAND = 0xc1, UNSPECIFIED = 0xff };

enum { CURRENT, MINIMUM, MAXIMUM, AVERAGE, PERIOD_MS, STAMP, STATE, CODE, DELAY_MS, SHORT, FIGURES };

static const char *const names[FIGURES] = {
    "current", "minimum", "maximum", "average", "period_ms",
    "stamp", "state", "code", "delay_ms", "short",
};

static char path[4096];

static int read_figures(long figures[FIGURES])
{
    char name[32];
    double number;
    FILE *file = fopen(path, "r");

    if (!file)
        return 0;
    memset(figures, 0, FIGURES * sizeof(*figures));
    while (fscanf(file, "%31s %lf", name, &number) == 2)
        for (int i = 0; i < FIGURES; i++)
            if (strcmp(name, names[i]) == 0)
                figures[i] = (long)(number + (number < 0 ? -0.5 : 0.5));
    fclose(file);
    return 1;
}

static unsigned char *put(unsigned char *to, unsigned long value, int bytes)
{
    for (; bytes > 0; bytes--, value >>= 8)
        *to++ = value & 0xff;
    return to;
}

static void answer(lmc_data_t *mc, msg_t *msg, unsigned char *reply, unsigned int *length,
                   void *unused)
{
    long figures[FIGURES];
    unsigned char *end = reply;

    (void)mc;
    (void)unused;
    *length = 1;
    reply[0] = INVALID_COMMAND;
    if (msg->cmd != GET_POWER_READING)
        return;
    reply[0] = UNSPECIFIED;
    if (!read_figures(figures))
        return;
    if (figures[DELAY_MS] > 0) {
        struct timespec delay = {figures[DELAY_MS] / 1000, figures[DELAY_MS] % 1000 * 1000000};
        nanosleep(&delay, NULL);
    }
    reply[0] = figures[CODE];
    if (figures[CODE] != 0)
        return;
    if (figures[STAMP] < 0)
        figures[STAMP] = time(NULL);
    end = put(end, 0, 1);
    end = put(end, GROUP, 1);
    for (int i = CURRENT; i <= AVERAGE; i++)
        end = put(end, figures[i], 2);
    end = put(end, figures[STAMP], 4);
    end = put(end, figures[PERIOD_MS], 4);
    end = put(end, figures[STATE], 1);
    *length = figures[SHORT] ? 4 : end - reply;
}

int ipmi_sim_module_print_version(sys_data_t *sys, char *options)
{
    (void)sys;
    (void)options;
    return 0;
}

int ipmi_sim_module_init(sys_data_t *sys, const char *options)
{
    (void)sys;
    snprintf(path, sizeof(path), "%s", options ? options : "");
    ipmi_emu_register_group_extension_handler(GROUP, answer, NULL);
    return 0;
}
