/* Being where requests come from. See kernel_near.h. */
#include "fs/kernel_near.h"

#include "core/clock.h"
#include "core/cpus.h"
#include "fs/task.h"

enum {
    STREAK = 16, /* Requests until a thread is followed. */
    LOOK_MS = 2, /* The scheduler may move it. */
    NOWHERE = -1,
    UNKNOWN = -2,
};

/* Where the thread is bound; a new one is where its maker was. */
static _Thread_local int bound = UNKNOWN;
/* What kernel_near_waits() tells; 0: nothing. */
static _Thread_local uint64_t waits;

void kernel_near_init(struct kernel_near *near)
{
    atomic_init(&near->tid, 0);
    atomic_init(&near->streak, 0);
    atomic_init(&near->cpu, NOWHERE);
    atomic_init(&near->looked_ms, 0);
}

static bool is_next(struct kernel_near *near, const struct wire_in *head)
{
    bool moves_data = head->opcode == WIRE_READ || head->opcode == WIRE_WRITE;

    if (!moves_data && atomic_load(&near->tid) == head->pid) {
        return true;
    }
    atomic_store(&near->tid, head->pid);
    atomic_store(&near->streak, 0);
    atomic_store(&near->cpu, NOWHERE);
    atomic_store(&near->looked_ms, 0);
    return false;
}

static bool closes(const struct wire_in *head)
{
    return head->opcode == WIRE_FLUSH || wire_is_release(head);
}

static void look(struct kernel_near *near, pid_t tid)
{
    int64_t now = clock_ms();

    if (now >= atomic_load(&near->looked_ms) + LOOK_MS) {
        atomic_store(&near->looked_ms, now);
        atomic_store(&near->cpu, task_cpu(tid));
    }
}

void kernel_near_follow(struct kernel_near *near, const struct wire_in *head)
{
    int cpu;

    /* What the kernel asks by itself is nobody's; and who closes a file may be
     * in execve, where task_cpu() would wait for it. */
    if (head->pid && !closes(head) && is_next(near, head) &&
        atomic_fetch_add(&near->streak, 1) >= STREAK) {
        look(near, (pid_t)head->pid);
    }
    cpu = atomic_load(&near->cpu);
    if (cpu != bound) {
        if (cpu == NOWHERE) {
            cpus_free();
        } else {
            cpus_bind(cpu);
        }
        bound = cpu;
    }
    waits = cpu >= 0 && !wire_is_release(head) ? head->unique : 0;
}

bool kernel_near_waits(uint64_t unique)
{
    return waits && waits == unique;
}
