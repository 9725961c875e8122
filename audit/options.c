/* DMODS_AUDIT: words with commas between them, as in UMEM_DEBUG. */
#include "audit.h"
#include "shadow.h"

#include <string.h>

#define LOG_DEFAULT 65536
#define CONTENTS_DEFAULT 256
#define SAMPLE_DEFAULT (512u << 10)
#define FRAMES_DEFAULT 15

/* A number with an optional k, m or g; false if it is none, or larger than `most`. */
static bool number(const char *text, size_t length, uint64_t most, uint64_t *value) {
    uint64_t n = 0;
    size_t i = 0;
    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++) {
        if (n > UINT64_MAX / 10 - 1)
            return false;
        n = n * 10 + (uint64_t)(text[i] - '0');
    }
    unsigned shift = 0;
    if (i > 0 && i + 1 == length) {
        const char *units = "kmg", *unit = memchr(units, text[i] | 0x20, 3);
        if (unit == NULL)
            return false;
        shift = 10 * (unsigned)(unit - units + 1);
        i++;
    }
    if (i == 0 || i != length || n > most >> shift)
        return false;
    *value = n << shift;
    return true;
}

struct word {
    const char *name;
    size_t length;
    const char *value; /* NULL: none */
    size_t value_length;
};

static bool is(const struct word *word, const char *name) {
    return word->length == strlen(name) && memcmp(word->name, name, word->length) == 0;
}

static bool valued(const struct word *word, uint64_t otherwise, uint64_t most, uint64_t *value) {
    *value = otherwise;
    return word->value == NULL || (number(word->value, word->value_length, most, value) && *value > 0);
}

static bool apply(const struct word *word, struct dmods_audit_options *options, bool *full) {
    uint64_t frames;
    if (is(word, "audit")) {
        *full = true;
        if (!valued(word, FRAMES_DEFAULT, MAX_FRAMES, &frames))
            return false;
        options->frames = (uint32_t)frames;
        return true;
    }
    if (is(word, "sample"))
        return valued(word, SAMPLE_DEFAULT, 1ull << 40, &options->sample);
    if (is(word, "log"))
        return valued(word, LOG_DEFAULT, 1ull << 26, &options->log);
    if (is(word, "contents"))
        return valued(word, CONTENTS_DEFAULT, 1ull << 20, &options->contents);
    if (is(word, "guards") && word->value == NULL) {
        options->flags |= DMODS_AUDIT_GUARDS;
        return true;
    }
    return false;
}

/* False where a word is not understood; what was understood until there stands. */
bool options_read(const char *text, struct dmods_audit_options *options) {
    bool understood = true, full = false;
    strncpy(options->text, text, sizeof options->text - 1);
    options->frames = FRAMES_DEFAULT;
    while (*text != 0) {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        struct word word = {text, equals != NULL ? (size_t)(equals - text) : length, equals != NULL ? equals + 1 : NULL,
                            equals != NULL ? length - (size_t)(equals - text) - 1 : 0};
        if (length != 0 && !apply(&word, options, &full))
            understood = false;
        text += length + (text[length] == ',');
    }
    if (options->contents != 0 && options->log == 0)
        options->log = LOG_DEFAULT;
    /* Guards and the log need to know of every block, so they win over sampling; "audit=25,sample" is sampling with 25
     * frames. */
    if (options->flags & DMODS_AUDIT_GUARDS || options->log != 0)
        options->sample = 0;
    if (options->sample != 0)
        options->flags |= DMODS_AUDIT_SAMPLED;
    if (options->flags & DMODS_AUDIT_GUARDS) {
        options->redzone = 16;
        options->redzone_byte = 0xbb;
        options->fresh = 0xbaddcafe;
        options->freed = 0xdeadbeef;
    }
    return understood;
}
