// reused COUNT: COUNT blocks are lost, and their addresses stand behind the texts of strings, which have the memory of
// structures that were deleted. As many blocks are in use that only a word behind a text leads to: the next member of its
// structure. Then the program aborts.
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

struct Old {
    long number[24 / sizeof(long)];
    void *lost;
    long more;
};
struct Record { // its text is no string: more follows
    char name[32];
    void *data;
};
struct Named {
    const char *name;
    size_t length;
};

static std::vector<std::string> strings;
static std::vector<Record *> records;
static std::vector<Named> names;

static void *data(char fill) { return memset(malloc(200), fill, 200); }

__attribute__((noinline, zero_call_used_regs("all"))) static void build(size_t count) {
    volatile char gap[65536]; // what this leaves on the stack is dead once it returns
    gap[0] = gap[sizeof gap - 1] = 0;
    strings.reserve(count), records.reserve(count), names.reserve(count);
    std::vector<Old *> olds;
    for (size_t i = 0; i < count; i++)
        olds.push_back(new Old{{}, data(1), 0});
    for (Old *each : olds)
        delete each;
    for (size_t i = 0; i < count; i++) {
        // With 24 letters the NUL is the lowest byte of the old address.
        const char *text = i % 2 ? "this text has 24 letters" : "a text of 20 letters";
        std::string made;
        made.reserve(sizeof(Old) - 1);
        strings.push_back(std::move(made));
        strings.back() = text;
        Record *record = new Record{{}, data(2)};
        strcpy(record->name, "a name that has 28 letters, ");
        records.push_back(record);
        names.push_back({record->name, strlen(record->name)});
    }
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    build(strtoul(argv[1], nullptr, 10));
    abort();
}
