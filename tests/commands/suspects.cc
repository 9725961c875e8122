// Programs whose memory has gone in a known way: argv[1] says how. Each says on stdout what it knows, and aborts.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

struct Session {
    std::string user;
    char state[300];
};

struct Server {
    std::map<std::string, Session *> by_token;
    long served;
};

static std::vector<void *> many[200];

__attribute__((noinline)) static void serve(Server &server)
{
    server.served++;
    abort();
}

static char *filled(size_t size, int byte)
{
    char *made = (char *)malloc(size);
    memset(made, byte, size);
    return made;
}

// Nobody but the leak itself and `keep` ever had these pointers.
__attribute__((noinline)) static void make(std::vector<char *> &keep, int count, size_t size, int kept_of_10)
{
    for (int i = 0; i < count; i++) {
        char *made = filled(size, 'x');
        if (i % 10 < kept_of_10)
            keep.push_back(made);
    }
}

int main(int, char **argv)
{
    std::string how = argv[1];
    if (how == "map") {
        Server server = {};
        for (int i = 0; i < 20000; i++)
            server.by_token["token-" + std::to_string(1000000000 + i)] = new Session{"user:" + std::to_string(i), {}};
        serve(server);
    }
    std::vector<char *> keep;
    if (how == "leak")
        make(keep, 20000, 500, 4);
    if (how == "elsewhere") {
        void *other = mmap(nullptr, 54 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(other, 1, 54 << 20);
        make(keep, 24000, 90, 10);
    }
    if (how == "free") {
        make(keep, 400000, 100, 10);
        for (size_t i = 0; i < keep.size(); i++)
            if (i % 100)
                free(keep[i]);
    }
    if (how == "sizes") // 200 owners, one size, and buffers without any
        for (int i = 0; i < 200; i++)
            for (int j = 0; j < 300; j++)
                many[i].push_back(filled(100, 0));
    printf("%zu\n", keep.size());
    abort();
}
