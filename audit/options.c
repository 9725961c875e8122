#include "options.h"
#include "frame.h"

#include <string.h>

#define LOG_DEFAULT 65536
#define CONTENTS_DEFAULT 256
#define SAMPLE_DEFAULT (512u << 10)
#define FRAMES_DEFAULT 64

/* Read a number with an optional k, m or g. False: it is not a number, or it is larger than `limit`. */
static bool read_number(const char *text, size_t length, uint64_t limit, uint64_t *value) {
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
    if (i == 0 || i != length || n > limit >> shift)
        return false;
    *value = n << shift;
    return true;
}

struct word {
    const char *name;
    size_t length;
    const char *value; /* NULL: the word has no value */
    size_t value_length;
};

static bool is(const struct word *word, const char *name) {
    return word->length == strlen(name) && memcmp(word->name, name, word->length) == 0;
}

/* Read the value of a word, from 1 to `limit`. A word without a value has `standard`. */
static bool read_value(const struct word *word, uint64_t standard, uint64_t limit, uint64_t *value) {
    *value = standard;
    return word->value == NULL || (read_number(word->value, word->value_length, limit, value) && *value > 0);
}

static bool read_word(const struct word *word, struct dmods_audit_options *options) {
    uint64_t frames;
    if (is(word, "audit")) {
        if (!read_value(word, FRAMES_DEFAULT, MAX_FRAMES, &frames))
            return false;
        options->frames = (uint32_t)frames;
        return true;
    }
    if (is(word, "sample"))
        return read_value(word, SAMPLE_DEFAULT, 1ull << 40, &options->sample);
    if (is(word, "log"))
        return read_value(word, LOG_DEFAULT, 1ull << 26, &options->log);
    if (is(word, "contents"))
        return read_value(word, CONTENTS_DEFAULT, 1ull << 20, &options->contents);
    if (is(word, "guards") && word->value == NULL) {
        options->flags |= DMODS_AUDIT_GUARDS;
        return true;
    }
    if (is(word, "maps") && word->value == NULL) {
        options->flags |= DMODS_AUDIT_MAPS;
        return true;
    }
    return false;
}

bool options_read(const char *text, struct dmods_audit_options *options) {
    bool understood = true;
    strncpy(options->text, text, sizeof options->text - 1);
    options->frames = FRAMES_DEFAULT;
    while (*text != 0) {
        size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        struct word word = {text, equals != NULL ? (size_t)(equals - text) : length, equals != NULL ? equals + 1 : NULL,
                            equals != NULL ? length - (size_t)(equals - text) - 1 : 0};
        if (length != 0 && !read_word(&word, options))
            understood = false;
        text += length + (text[length] == ',');
    }
    if (options->contents != 0 && options->log == 0)
        options->log = LOG_DEFAULT;
    /* Guards and the log need a record of every block, so they switch sampling off. "audit=25,sample" samples with 25
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
