// Use operator new and delete in all their forms: objects FILE. The file lists the blocks that stay.
#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#define KEEP __attribute__((noinline, noclone))

struct alignas(128) Wide {
    char bytes[256];
};
struct Throws {
    char room[56];
    Throws() { throw std::runtime_error("a text that is too long for a string without a block of its own"); }
};

KEEP static void kept(FILE *file, size_t size, void *p) { fprintf(file, "%p %zu\n", p, size); }

KEEP static void maker(FILE *file) {
    kept(file, 1, new char);
    kept(file, 7, new char[7]);
    kept(file, 100, new (std::nothrow) char[100]);
    kept(file, 256, new Wide);
    kept(file, 512, new Wide[2]);
    kept(file, 512, new (std::nothrow) Wide[2]);
    kept(file, 16, ::operator new(16, std::nothrow));
    kept(file, 640, ::operator new(640, std::align_val_t(64), std::nothrow));
    for (int i = 0; i < 1000; i++) {
        delete new int(i);
        delete[] new std::string[3];
        delete new Wide;
        delete[] new Wide[3];
        ::operator delete(::operator new(48, std::nothrow), std::nothrow);
        ::operator delete[](::operator new[](48, std::align_val_t(64)), std::align_val_t(64));
        std::vector<std::string> more(i % 50, std::string(i % 90, 'x'));
        try {
            delete new Throws;
        } catch (const std::exception &e) {
            if (std::string(e.what()).size() < 20)
                _exit(3);
        }
    }
    bool thrown = false;
    try {
        volatile size_t far_too_much = ~(size_t)0 / 2 - 64;
        kept(file, 0, ::operator new(far_too_much));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    if (!thrown)
        _exit(4);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    static char text[1 << 16];
    FILE *file = fopen(argv[1], "w");
    setvbuf(file, text, _IOFBF, sizeof text);
    fprintf(file, "%d %p\n", getpid(), (void *)maker);
    maker(file);
    fprintf(file, "end\n");
    fflush(file);
    pause();
}
