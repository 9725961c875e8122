// Objects of shared_ptr, of which some are destroyed while weak_ptrs remain. Says "NAME EXPIRED ALIVE" for each kind,
// counted by what weak_ptr::expired() says. Arguments: how many of each are made, and every how manieth stays alive.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

struct Job {
  char data[600];
  std::vector<int> list;
  Job() : list(4, 1) { memset(data, 'j', sizeof data); }
};
struct Page {
  long numbers[40] = {1, 2, 3};
};
struct Row {
  long numbers[10] = {7};
};
struct Closer {
  void operator()(Row *row) const { delete row; }
};

std::vector<std::weak_ptr<Job>> jobs;
std::vector<std::weak_ptr<Page>> pages;
std::vector<std::weak_ptr<Row>> rows;
std::vector<std::shared_ptr<void>> alive;

template <class T> static void tell(const char *name, const std::vector<std::weak_ptr<T>> &all) {
  int expired = 0;
  for (const auto &each : all)
    expired += each.expired();
  printf("%s %d %d\n", name, expired, int(all.size()) - expired);
}

static __attribute__((noinline)) void make(int count, int every) {
  for (int number = 0; number < count; number++) {
    auto job = std::make_shared<Job>();
    std::shared_ptr<Page> page(new Page);
    std::shared_ptr<Row> row(new Row, Closer());
    jobs.push_back(job);
    pages.push_back(page);
    rows.push_back(row);
    if (number % every == 0)
      alive.insert(alive.end(), {job, page, row});
  }
}

int main(int, char **arguments) {
  make(atoi(arguments[1]), atoi(arguments[2]));
  tell("Job", jobs);
  tell("Page", pages);
  tell("Row", rows);
  fflush(stdout);
  volatile char bytes[8192];
  for (unsigned at = 0; at < sizeof bytes; at++)
    bytes[at] = 0;
  raise(SIGABRT);
}
