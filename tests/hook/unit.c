// SPDX-License-Identifier: Apache-2.0
/* unit - the parts of the hook that can be called from a plain program: sampling, environment, text, page
 * checks. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../hook/environment.h"
#include "../../hook/page.h"
#include "../../hook/sample.h"
#include "../../hook/text.h"

static int passed, failed;

#define CHECK(what, condition)                                   \
    do {                                                         \
        if (condition)                                           \
            passed++;                                            \
        else {                                                   \
            failed++;                                            \
            printf("unit: %s: failed (%s)\n", what, #condition); \
        }                                                        \
    } while (0)

static double as_double(probability p) {
    return ldexp((double)p, -63);
}

/* Against libm, over twelve decades of sizes and all intervals. */
static void probabilities(void) {
    double worst = 0;
    for (unsigned shift = SAMPLE_FIRST_SHIFT; shift <= SAMPLE_LAST_SHIFT; shift++) {
        for (double bytes = 65; bytes < 1e13; bytes *= 1.07) {
            double exact = -expm1(-floor(bytes) / ldexp(1, (int)shift));
            double error = fabs(as_double(sample_probability((uint64_t)bytes, shift)) / exact - 1);
            worst = error > worst ? error : worst;
        }
    }
    CHECK("probability agrees with libm to 1e-6", worst < 1e-6);
    CHECK("probability of absurd sizes is 1", sample_probability(UINT64_MAX, 12) == PROBABILITY_ONE);
    CHECK("probability of nothing is 0", sample_probability(0, 12) == 0);
}

#define DRAWS 4000000

/* Mean and variance of an exponential distribution, and the share above its mean. */
static void gaps(void) {
    uint64_t state = 12345;
    double sum = 0, squares = 0, above = 0;
    for (int i = 0; i < DRAWS; i++) {
        double gap = (double)sample_gap(&state, 20) / (1 << 20);
        sum += gap;
        squares += gap * gap;
        above += gap > 1;
    }
    CHECK("mean gap is S", fabs(sum / DRAWS - 1) < 0.003);
    CHECK("second moment is 2 S^2", fabs(squares / DRAWS - 2) < 0.02);
    CHECK("exp(-1) of the gaps are above S", fabs(above / DRAWS - exp(-1)) < 0.001);
}

static void weights(void) {
    uint64_t state = 99;
    for (double p = 1; p > 1e-6; p *= 0.37) {
        probability fixed = (probability)ldexp(p, 63);
        double sum = 0;
        for (int i = 0; i < 10000; i++)
            sum += (double)sample_weight(fixed, &state);
        CHECK("mean weight is 256/p", fabs(sum / 10000 * p / 256 - 1) < 1e-4);
        CHECK("share is bytes/p", fabs((double)sample_share(1000000, fixed) * p / 1e6 - 1) < 1e-4);
    }
}

static void keeping(void) {
    uint64_t state = 7;
    int kept = 0;
    for (int i = 0; i < DRAWS; i++)
        kept += sample_keep(PROBABILITY_ONE / 10, PROBABILITY_ONE / 4, &state);
    CHECK("keeps part/whole", fabs((double)kept / DRAWS - 0.4) < 0.002);
    CHECK("keeps all of a whole", sample_keep(PROBABILITY_ONE, PROBABILITY_ONE, &state));
}

static void logarithms(void) {
    CHECK("log2", sample_log2(0) == 0 && sample_log2(1) == 0 && sample_log2(2) == 1 && sample_log2(3) == 1 &&
                      sample_log2(UINT64_MAX) == 63);
}

/* Restores a copy of `before` and compares it with `after`, both ended by NULL. */
static void restores(const char *what, const char *const *before, const char *const *after, void (*restore)(char **)) {
    char *environment[16] = {NULL};
    for (int i = 0; before[i] != NULL; i++)
        environment[i] = strdup(before[i]);
    restore(environment);
    int same = 1;
    for (int i = 0; same && (after[i] != NULL || environment[i] != NULL); i++)
        same = after[i] != NULL && environment[i] != NULL && strcmp(after[i], environment[i]) == 0;
    CHECK(what, same);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NOTHING ((const char *const[]){NULL})

static void environments(void) {
    restores("a changed entry is put back in its place",
             LIST("A=1", "LD_PRELOAD=new", "B=2", "IMAS_WAS_LD_PRELOAD=old", "IMAS_PAGE=/x", "IMAS_UNSET="),
             LIST("A=1", "LD_PRELOAD=old", "B=2"), environment_restore);
    restores("added entries go", LIST("LD_PRELOAD=new", "A=1", "MALLOC_CONF=x", "IMAS_UNSET=LD_PRELOAD:MALLOC_CONF"),
             LIST("A=1"), environment_restore);
    restores("the pad goes", LIST("MALLOC_CONF=x", "A=1", "IMAS_PAD=", "IMAS_UNSET=MALLOC_CONF"), LIST("A=1"),
             environment_restore);
    restores("the pad goes with the page", LIST("IMAS_FOLLOW=1", "IMAS_PAD=", "IMAS_PAGE=/x"), LIST("IMAS_FOLLOW=1"),
             environment_restore);
    restores("a removed entry comes back", LIST("A=1", "IMAS_WAS_GONE=value"), LIST("A=1", "GONE=value"),
             environment_restore);
    restores("names are compared whole", LIST("AB=1", "A=2", "ABC=3", "IMAS_UNSET=AB"), LIST("A=2", "ABC=3"),
             environment_restore);
    restores("an empty value is a value", LIST("A=new", "IMAS_WAS_A="), LIST("A="), environment_restore);
    restores("what only looks like ours stays", LIST("IMAS_PAGES=1", "XIMAS_PAGE=2", "IMAS_DISABLE=0"),
             LIST("IMAS_PAGES=1", "XIMAS_PAGE=2", "IMAS_DISABLE=0"), environment_restore);
    restores("entries without = stay", LIST("odd", "A=1", "IMAS_UNSET=odd:A"), LIST("odd"), environment_restore);
    restores("follow drops the page only", LIST("IMAS_FOLLOW=1", "IMAS_PAGE=/x", "LD_PRELOAD=new", "IMAS_UNSET=LD_PRELOAD"),
             LIST("IMAS_FOLLOW=1", "LD_PRELOAD=new", "IMAS_UNSET=LD_PRELOAD"), environment_restore);
    restores("tree keeps all", LIST("IMAS_TREE=1", "IMAS_PAGE=/x"), LIST("IMAS_TREE=1", "IMAS_PAGE=/x"), environment_restore);
    restores("a clean start drops all even so",
             LIST("IMAS_TREE=1", "IMAS_FOLLOW=1", "IMAS_PAGE=/x", "LD_PRELOAD=n", "IMAS_UNSET=IMAS_TREE:IMAS_FOLLOW:LD_PRELOAD"),
             NOTHING, environment_restore_all);
    restores("an empty environment", NOTHING, NOTHING, environment_restore);
}

static void settings(void) {
    CHECK("a preload is no setting", !environment_has_settings((char **)LIST("A=1", "IMAS_WAS_LD_PRELOAD=x", "IMAS_UNSET=IMAS_PLACED")) &&
                                         !environment_has_settings((char **)LIST("IMAS_UNSET=IMAS_PLACED:LD_PRELOAD", "IMAS_PAGE=/x")));
    CHECK("an added variable is", environment_has_settings((char **)LIST("IMAS_UNSET=LD_PRELOAD:MALLOC_CONF")) &&
                                      environment_has_settings((char **)LIST("IMAS_UNSET=LD_PRELOADS")));
    CHECK("a changed variable is", environment_has_settings((char **)LIST("IMAS_UNSET=LD_PRELOAD", "IMAS_WAS_A=")));
}

static struct imas_page_header header;

static void write_page(const char *path, size_t bytes) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(fd, &header, sizeof header) < 0 || ftruncate(fd, (off_t)bytes) != 0)
        exit(2);
    close(fd);
}

#define ACCEPTED(path) (page_open(path, IMAS_PAGE_FLIGHT) != NULL)

static void pages(const char *path) {
    char other[4096];
    snprintf(other, sizeof other, "%s.other", path);
    unlink(path);
    unlink(other);
    header = (struct imas_page_header){.magic = IMAS_PAGE_MAGIC, .version = IMAS_PAGE_VERSION, .page_bytes = IMAS_HEADER_BYTES,
                                       .kind = IMAS_PAGE_FLIGHT, .pid = (uint32_t)getpid(), .armed = 1};
    const struct imas_page_header good = header;
    write_page(path, IMAS_HEADER_BYTES);
    CHECK("a sound page is taken", ACCEPTED(path));
    CHECK("not for another kind", page_open(path, IMAS_PAGE_TRIAL) == NULL);
    write_page(path, IMAS_HEADER_BYTES - 1);
    CHECK("not too short", !ACCEPTED(path));
    write_page(path, IMAS_HEADER_BYTES + 1);
    CHECK("not too long", !ACCEPTED(path));
    header.pid++;
    write_page(path, IMAS_HEADER_BYTES);
    CHECK("not of another pid", !ACCEPTED(path));
    header = good;
    header.magic++;
    write_page(path, IMAS_HEADER_BYTES);
    CHECK("not without magic", !ACCEPTED(path));
    header = good;
    header.version++;
    write_page(path, IMAS_HEADER_BYTES);
    CHECK("not of another version", !ACCEPTED(path));
    header = good;
    header.armed = 0;
    write_page(path, IMAS_HEADER_BYTES);
    CHECK("not before it is armed", !ACCEPTED(path));
    header = good;
    header.state = IMAS_STATE_ACTIVE;
    write_page(path, IMAS_HEADER_BYTES);
    CHECK("not twice", !ACCEPTED(path));
    header = good;
    write_page(path, IMAS_HEADER_BYTES);
    CHECK("symlink", symlink(path, other) == 0 && !ACCEPTED(other));
    unlink(other);
    CHECK("hard link", link(path, other) == 0 && !ACCEPTED(other));
    unlink(other);
    CHECK("fifo, without waiting", mkfifo(other, 0600) == 0 && !ACCEPTED(other));
    CHECK("a directory", !ACCEPTED("/"));
    CHECK("nothing", !ACCEPTED("/nonexistent"));
    if (geteuid() == 0) {
        CHECK("not of another user", chown(path, 65534, 65534) == 0 && !ACCEPTED(path));
    }
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    probabilities();
    gaps();
    weights();
    keeping();
    logarithms();
    environments();
    settings();
    pages(argv[1]);
    printf("unit: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}
