#include "fde.h"
#include "leb128.h"

#include <dlfcn.h>
#include <link.h>

/* The encodings of a pointer in .eh_frame (LSB 5.0, 10.5.1). */
enum { ABSOLUTE = 0x00, ULEB = 0x01, DATA2 = 0x02, DATA4 = 0x03, DATA8 = 0x04, SLEB = 0x09, SDATA2 = 0x0a };
enum { SDATA4 = 0x0b, SDATA8 = 0x0c, PC_RELATIVE = 0x10, DATA_RELATIVE = 0x30, INDIRECT = 0x80, OMITTED = 0xff };

bool fde_pointer(const uint8_t **p, uint8_t encoding, uintptr_t data, uintptr_t *value) {
    uintptr_t here = (uintptr_t)*p, v;
    switch (encoding & 0x0f) {
    case ABSOLUTE:
    case DATA8:
    case SDATA8:
        v = READ(uint64_t, p);
        break;
    case DATA2:
        v = READ(uint16_t, p);
        break;
    case DATA4:
        v = READ(uint32_t, p);
        break;
    case SDATA2:
        v = (uintptr_t)READ(int16_t, p);
        break;
    case SDATA4:
        v = (uintptr_t)READ(int32_t, p);
        break;
    case ULEB:
        v = leb128_unsigned(p);
        break;
    case SLEB:
        v = (uintptr_t)leb128_signed(p);
        break;
    default:
        return false;
    }
    switch (encoding & 0x70) {
    case ABSOLUTE:
        break;
    case PC_RELATIVE:
        v += v != 0 ? here : 0;
        break;
    case DATA_RELATIVE:
        v += data;
        break;
    default:
        return false;
    }
    if (encoding & INDIRECT)
        memcpy(&v, (const void *)v, sizeof v);
    *value = v;
    return true;
}

static bool read_cie(const uint8_t *p, struct cie *cie) {
    uint32_t length = READ(uint32_t, &p);
    if (length == 0 || length == 0xffffffff) /* no linker writes the 64-bit form for .eh_frame */
        return false;
    cie->end = p + length;
    if (READ(uint32_t, &p) != 0)
        return false;
    uint8_t version = *p++;
    if (version != 1 && version != 3)
        return false;
    const char *augmentation = (const char *)p;
    p += strlen(augmentation) + 1;
    cie->code_align = leb128_unsigned(&p);
    cie->data_align = leb128_signed(&p);
    cie->return_register = version == 1 ? *p++ : (uint8_t)leb128_unsigned(&p);
    cie->fde_encoding = ABSOLUTE;
    cie->augmented = augmentation[0] == 'z';
    cie->signal_frame = false;
    if (!cie->augmented) {
        cie->program = p;
        return augmentation[0] == 0;
    }
    uint64_t size = leb128_unsigned(&p);
    cie->program = p + size;
    for (const char *letter = augmentation + 1; *letter != 0; letter++) {
        uintptr_t personality;
        uint8_t encoding;
        switch (*letter) {
        case 'R':
            cie->fde_encoding = *p++;
            break;
        case 'L':
            p++;
            break;
        case 'P':
            encoding = *p++;
            if (!fde_pointer(&p, encoding & 0x7f, 0, &personality))
                return false;
            break;
        case 'S':
            cie->signal_frame = true;
            break;
        case 'B': /* AArch64: return addresses are signed with the B key */
            break;
        default:
            return false;
        }
    }
    return true;
}

static bool read_fde(const uint8_t *p, struct fde *fde) {
    uint32_t length = READ(uint32_t, &p);
    if (length == 0 || length == 0xffffffff)
        return false;
    fde->end = p + length;
    const uint8_t *here = p;
    uint32_t back = READ(uint32_t, &p);
    if (back == 0 || !read_cie(here - back, &fde->cie))
        return false;
    uintptr_t size;
    if (!fde_pointer(&p, fde->cie.fde_encoding, 0, &fde->start) ||
        !fde_pointer(&p, fde->cie.fde_encoding & 0x0f, 0, &size))
        return false;
    fde->size = size;
    if (fde->cie.augmented) {
        uint64_t skipped = leb128_unsigned(&p);
        p += skipped;
    }
    fde->program = p;
    return true;
}

/* Search the table of .eh_frame_hdr, which every linker writes. It holds pairs of function and FDE, sorted by function,
 * both relative to the header. */
static bool search_header(const uint8_t *header, uintptr_t address, struct fde *fde) {
    const uint8_t *p = header + 4;
    uintptr_t frames, count;
    if (header[0] != 1 || header[2] == OMITTED || header[3] != (DATA_RELATIVE | SDATA4) ||
        !fde_pointer(&p, header[1], (uintptr_t)header, &frames) ||
        !fde_pointer(&p, header[2], (uintptr_t)header, &count) || count == 0)
        return false;
    const int32_t *table = (const int32_t *)p;
    int64_t wanted = (int64_t)(address - (uintptr_t)header);
    size_t low = 0, high = count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (table[2 * middle] <= wanted)
            low = middle;
        else
            high = middle;
    }
    return table[2 * low] <= wanted && read_fde(header + table[2 * low + 1], fde) && address - fde->start < fde->size;
}

/* struct dl_find_object of <dlfcn.h> in glibc 2.35 and later. The machine that compiles this may have an older one. */
struct found_object {
    unsigned long long flags;
    void *map_start, *map_end;
    struct link_map *map;
    void *eh_frame;
    unsigned long long reserved[7];
};

struct lookup {
    uintptr_t address;
    const uint8_t *header;
};

static int check_object(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct lookup *lookup = data;
    const uint8_t *header = NULL;
    bool inside = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && lookup->address - start < segment->p_memsz)
            inside = true;
        if (segment->p_type == PT_GNU_EH_FRAME)
            header = (const uint8_t *)start;
    }
    if (inside)
        lookup->header = header;
    return inside;
}

/* The search without locks, where glibc has it (2.35). Else the search takes the loader's lock, which is recursive, as
 * libgcc does. */
static int (*find_object)(void *, struct found_object *);

void fde_start(void) {
#ifndef DMODS_AUDIT_OLD_GLIBC
    find_object = (int (*)(void *, struct found_object *))dlsym(RTLD_DEFAULT, "_dl_find_object");
#endif
}

static const uint8_t *header_of(uintptr_t address) {
    if (find_object != NULL) {
        struct found_object found;
        return find_object((void *)address, &found) == 0 ? found.eh_frame : NULL;
    }
    struct lookup lookup = {address, NULL};
    dl_iterate_phdr(check_object, &lookup);
    return lookup.header;
}

bool fde_find(uintptr_t address, struct fde *fde) {
    const uint8_t *header = header_of(address);
    return header != NULL && search_header(header, address, fde);
}
