#include "core.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_MAPS ((size_t)32 << 20) /* bytes of /proc/self/maps: 65530 mappings with paths of 400 bytes */
#define MOST_LOADS ((size_t)1 << 17)
#define MOST_NOTES ((size_t)64 << 20)
#define PAGE_PRESENT (1ull << 63) /* Documentation/admin-guide/mm/pagemap.rst */
#define PAGE_SWAPPED (1ull << 62)

/* A PT_LOAD. Its first `dumped` bytes are in the file. */
struct load {
    uintptr_t start, end, offset; /* offset: in the mapped file */
    const char *path;             /* NULL: none; it ends at a newline */
    uint32_t path_length, flags;
    size_t dumped;
    bool sparse; /* only the pages that were used are written */
};

struct maker {
    int fd;
    char *maps;
    struct load *loads;
    size_t count, capacity;
    unsigned char *notes;
    size_t noted;
    size_t page;
};

/* Zeroed memory, by a system call: mmap() is a hook. It is never given back, because the process ends. */
static void *scratch(size_t size) {
    long p = syscall(SYS_mmap, NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == -1 ? NULL : (void *)p;
}

static bool write_at(int fd, const void *from, size_t size, uint64_t at) {
    while (size > 0) {
        long done = syscall(SYS_pwrite64, fd, from, size, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        from = (const char *)from + done;
        size -= (size_t)done;
        at += (uint64_t)done;
    }
    return true;
}

/* Read a file of /proc. Return its size, or -1. */
static long read_whole(const char *path, char *to, size_t size) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    size_t used = 0;
    long got = 1;
    while (used < size && ((got = syscall(SYS_read, fd, to + used, size - used)) > 0 || (got < 0 && errno == EINTR)))
        used += got > 0 ? (size_t)got : 0;
    syscall(SYS_close, fd);
    return got < 0 ? -1 : (long)used;
}

static uintptr_t hex(const char **at) {
    uintptr_t value = 0;
    for (;; ++*at) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value << 4 | (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

static void add(struct maker *m, struct load load) {
    if (load.start < load.end && m->count < m->capacity)
        m->loads[m->count++] = load;
}

/* Add a mapping: the auditor's memory in it with its contents, the rest without. */
static void add_mapping(struct maker *m, struct load whole) {
    const struct dmods_audit_range *ranges = (const struct dmods_audit_range *)root.ranges.entries;
    uint64_t count = __atomic_load_n(&root.ranges.count, __ATOMIC_ACQUIRE);
    bool header = whole.path != NULL && whole.offset == 0 && whole.flags & PF_R;
    while (whole.start < whole.end) {
        const struct dmods_audit_range *own = NULL; /* the first one that ends behind the start */
        for (uint64_t i = 0; whole.flags & PF_W && i < count; i++)
            if (ranges[i].end > whole.start && ranges[i].start < whole.end &&
                ranges[i].kind != DMODS_AUDIT_RANGE_BOOTSTRAP && (own == NULL || ranges[i].start < own->start))
                own = &ranges[i];
        struct load load = whole;
        if (own != NULL && own->start <= whole.start) {
            load.end = own->end < whole.end ? own->end : whole.end;
            load.dumped = load.end - load.start;
            load.sparse = own->kind != DMODS_AUDIT_RANGE_LIBRARY;
        } else {
            load.end = own != NULL ? own->start : whole.end;
            load.dumped = header && load.end - load.start >= m->page ? m->page : 0;
        }
        header = false;
        add(m, load);
        whole.offset += load.end - whole.start;
        whole.start = load.end;
    }
}

/* 7f0000000000-7f0000021000 rw-p 00000000 00:00 0   PATH */
static void read_mappings(struct maker *m) {
    for (const char *at = m->maps; *at != 0;) {
        struct load load = {.start = hex(&at)};
        at += *at == '-';
        load.end = hex(&at);
        at += *at == ' ';
        for (unsigned i = 0; i < 4 && *at != 0 && *at != '\n'; i++, at++)
            load.flags |= *at == 'r' ? PF_R : *at == 'w' ? PF_W : *at == 'x' ? PF_X : 0;
        at += *at == ' ';
        load.offset = hex(&at);
        const char *end = at;
        while (*end != 0 && *end != '\n')
            end++;
        const char *path = memchr(at, '/', (size_t)(end - at));
        if (path != NULL && path[-1] == ' ') {
            load.path = path;
            load.path_length = (uint32_t)(end - path);
        }
        if (load.start < 1ull << 63) /* not [vsyscall] */
            add_mapping(m, load);
        at = end + (*end == '\n');
    }
}

static void note_bytes(struct maker *m, const void *from, size_t size) {
    if (size > MOST_NOTES - m->noted)
        size = MOST_NOTES - m->noted;
    memcpy(m->notes + m->noted, from, size);
    m->noted += size;
}

static void note_word(struct maker *m, uint64_t word) { note_bytes(m, &word, sizeof word); }

/* Begin a note. Return where it begins, for note_end. */
static size_t note_begin(struct maker *m, uint32_t type) {
    size_t start = m->noted;
    Elf64_Nhdr header = {.n_namesz = 5, .n_type = type};
    note_bytes(m, &header, sizeof header);
    note_bytes(m, "CORE\0\0\0", 8);
    return start;
}

static void note_end(struct maker *m, size_t start) {
    Elf64_Nhdr *header = (Elf64_Nhdr *)(m->notes + start);
    header->n_descsz = (uint32_t)(m->noted - start - sizeof *header - 8);
    note_bytes(m, "\0\0\0", -m->noted & 3);
}

static void note_process(struct maker *m) {
    struct {
        char state[16];
        uint32_t uid, gid;
        int32_t pid, more[3];
        char name[16], arguments[80];
    } info = {.pid = (int32_t)root.pid}; /* struct elf_prpsinfo of 64 bits */
    prctl(PR_GET_NAME, info.name);
    size_t start = note_begin(m, NT_PRPSINFO);
    note_bytes(m, &info, sizeof info);
    note_end(m, start);
    start = note_begin(m, NT_AUXV);
    long size = read_whole("/proc/self/auxv", (char *)m->notes + m->noted, 4096);
    m->noted += size > 0 ? (size_t)size : 0;
    note_end(m, start);
}

/* NT_FILE: count, page size, start, end and offset in pages of each mapping, then the paths (fs/binfmt_elf.c). */
static void note_files(struct maker *m) {
    size_t start = note_begin(m, NT_FILE), files = 0;
    for (size_t i = 0; i < m->count; i++)
        files += m->loads[i].path != NULL;
    note_word(m, files);
    note_word(m, m->page);
    for (size_t i = 0; i < m->count; i++)
        if (m->loads[i].path != NULL) {
            note_word(m, m->loads[i].start);
            note_word(m, m->loads[i].end);
            note_word(m, m->loads[i].offset / m->page);
        }
    for (size_t i = 0; i < m->count; i++)
        if (m->loads[i].path != NULL) {
            note_bytes(m, m->loads[i].path, m->loads[i].path_length);
            note_bytes(m, "", 1);
        }
    note_end(m, start);
}

/* Write the used pages of a load. Where /proc/self/pagemap cannot be read, all pages are written. */
static bool write_pages(struct maker *m, int pagemap, const struct load *load, uint64_t to) {
    uint64_t entries[512];
    for (uintptr_t at = load->start; at < load->start + load->dumped;) {
        size_t pages = (load->start + load->dumped - at) / m->page, run = 0;
        pages = pages > 512 ? 512 : pages;
        size_t size = pages * sizeof *entries;
        bool known = load->sparse && pagemap >= 0 &&
                     syscall(SYS_pread64, pagemap, entries, size, at / m->page * 8) == (long)size;
        for (size_t i = 0; i <= pages; i++) {
            if (i < pages && (!known || entries[i] & (PAGE_PRESENT | PAGE_SWAPPED))) {
                run++;
                continue;
            }
            uintptr_t from = at + (i - run) * m->page;
            /* A page of a file that was cut cannot be read: EFAULT. It stays a hole. */
            if (run > 0 && !write_at(m->fd, (void *)from, run * m->page, to + (from - load->start)) && errno != EFAULT)
                return false;
            run = 0;
        }
        at += pages * m->page;
    }
    return true;
}

static bool write_headers(struct maker *m, uint64_t *first) {
    size_t count = m->count + 1, table = count * sizeof(Elf64_Phdr), notes_at = sizeof(Elf64_Ehdr) + table;
    bool many = count >= PN_XNUM;
    *first = (notes_at + m->noted + sizeof(Elf64_Shdr) + m->page - 1) / m->page * m->page;
    Elf64_Ehdr header = {
        .e_type = ET_CORE,
#if defined __aarch64__
        .e_machine = EM_AARCH64,
#else
        .e_machine = EM_X86_64,
#endif
        .e_version = EV_CURRENT,
        .e_phoff = sizeof header,
        .e_ehsize = sizeof header,
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = many ? PN_XNUM : (Elf64_Half)count
    };
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    if (many) { /* the number of segments is in sh_info of section 0 (fs/binfmt_elf.c, fill_extnum_info) */
        Elf64_Shdr extended = {.sh_size = 1, .sh_info = (Elf64_Word)count};
        header.e_shoff = notes_at + m->noted;
        header.e_shentsize = sizeof extended;
        header.e_shnum = 1;
        if (!write_at(m->fd, &extended, sizeof extended, header.e_shoff))
            return false;
    }
    Elf64_Phdr *segments = scratch(table);
    if (segments == NULL)
        return false;
    segments[0] = (Elf64_Phdr){.p_type = PT_NOTE, .p_offset = notes_at, .p_filesz = m->noted, .p_align = 4};
    uint64_t at = *first;
    for (size_t i = 0; i < m->count; i++) {
        const struct load *load = &m->loads[i];
        segments[i + 1] = (Elf64_Phdr){.p_type = PT_LOAD,
                                       .p_flags = load->flags,
                                       .p_offset = at,
                                       .p_vaddr = load->start,
                                       .p_filesz = load->dumped,
                                       .p_memsz = load->end - load->start,
                                       .p_align = m->page};
        at += load->dumped;
    }
    return write_at(m->fd, &header, sizeof header, 0) && write_at(m->fd, segments, table, sizeof header) &&
           write_at(m->fd, m->notes, m->noted, notes_at) && syscall(SYS_ftruncate, m->fd, at) == 0;
}

bool core_write(int fd) {
    struct maker m = {.fd = fd, .capacity = MOST_LOADS, .page = getauxval(AT_PAGESZ)};
    m.maps = scratch(MOST_MAPS);
    m.loads = scratch(MOST_LOADS * sizeof *m.loads);
    m.notes = scratch(MOST_NOTES + 4096);
    /* The maker's own memory comes after the list of mappings is read, except for the three above. */
    if (m.maps == NULL || m.loads == NULL || m.notes == NULL ||
        read_whole("/proc/self/maps", m.maps, MOST_MAPS - 1) < 0)
        return false;
    read_mappings(&m);
    note_process(&m);
    note_files(&m);
    uint64_t at;
    if (!write_headers(&m, &at))
        return false;
    int pagemap = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    for (size_t i = 0; i < m.count; at += m.loads[i++].dumped)
        if (m.loads[i].dumped != 0 && !write_pages(&m, pagemap, &m.loads[i], at))
            return false;
    return true;
}
