"""The types of the kernel's global variables that dmods and drgn's helpers use.

BTF has the types of structures and of per-CPU variables (those since pahole 1.20; 5.10 is older), not those of other
variables. A line declares them as C does.
``[]`` fills the room up to the next symbol; ``[?]`` does so where there is room for more than one element, and is a
pointer to the first otherwise. ``struct {a, b}`` is the structure without a name that has these members. A variable
that a kernel does not have is left out, as one whose type it does not have. ``function`` is one that is asked for by
name: the BTF of kernels before 5.13 lacks those that are used only at boot.
"""

from __future__ import annotations

from collections.abc import Iterator

from dmods.base.regex import regex

_DECLARED = """
atomic_t panic_cpu
atomic_long_t _totalram_pages, nr_swap_pages, nr_vmalloc_pages, num_poisoned_pages, zswap_stored_pages
atomic_long_t tcp_memory_allocated, udp_memory_allocated
atomic_long_t vm_node_stat[], vm_zone_stat[], vm_numa_event[], vm_numa_stat[]
char linux_banner[]
char *saved_command_line, *log_buf
int crashing_cpu, direct_gbpages, hugetlb_max_hstate, max_threads, pcpu_nr_slots, pcpu_nr_units
int sysctl_max_map_count, sysctl_overcommit_ratio, nr_irqs, ipc_mni_shift, sections_per_block
int rcu_num_lvls
function vmemmap_populate
gate_desc idt_table[]
long int total_swap_pages, nr_dentry, nr_dentry_negative, nr_dentry_unused
long unsigned int __highest_present_section_nr, __per_cpu_offset[], avenrun[], cpu_bit_bitmap[], direct_pages_count[]
long unsigned int max_pfn, max_low_pfn, min_low_pfn, page_offset_base, vmemmap_base, tainted_mask
long unsigned int pcpu_nr_populated, totalcma_pages, totalreserve_pages, sysctl_overcommit_kbytes
long unsigned int *pcpu_unit_offsets
long unsigned int jiffies, phys_base
long unsigned int process_counts, transparent_hugepage_flags
irq_cpustat_t irq_stat
nodemask_t node_states[]
note_buf_t *crash_notes
slab_flags_t slub_debug
struct address_space *swapper_spaces[]
struct bus_type memory_subsys, pci_bus_type
struct blk_major_name *major_names[]
struct cgroup_root cgrp_dfl_root
struct char_device_struct *chrdevs[]
struct class block_class
struct clocksource clocksource_jiffies
struct cma cma_areas[]
struct cpumask __cpu_online_mask, __cpu_possible_mask, __cpu_present_mask
struct ctl_table_root sysctl_table_root
struct damon_target *damon_target
struct file_operations anon_inode_fops, io_uring_fops, ns_file_operations, perf_fops, pipeanon_fops, pipefifo_fops
struct file_operations socket_file_ops
struct file_system_type nsfs
struct files_stat_struct files_stat
struct fs_struct init_fs
struct ftrace_ops *ftrace_ops_list, ftrace_list_end, graph_ops, direct_ops
struct ftrace_page *ftrace_pages_start
struct gen_pool *atomic_pool_dma, *atomic_pool_dma32, *atomic_pool_kernel
struct hlist_bl_head *dentry_hashtable
struct hlist_head kprobe_table[], kretprobe_inst_table[], unix_socket_table[], uidhash_table[]
struct hstate hstates[]
struct idr btf_idr, link_idr, map_idr, prog_idr
struct inet_hashinfo tcp_hashinfo
struct ipc_namespace init_ipc_ns
struct kmem_cache *kmem_cache, *kmem_cache_node, *task_struct_cachep
struct kernfs_node *sysfs_root_kn
struct kobj_map *cdev_map
struct kobject *block_depr, *irq_kobj_base
struct kprobe_insn_cache kprobe_insn_slots, kprobe_optinsn_slots
struct kset *bus_kset, *class_kset, *slab_kset
struct list_head bpf_kallsyms, ftrace_trace_arrays, modules, net_namespace_list, pack_list, pci_root_buses, pgd_list
struct list_head shrinker_list, slab_caches, super_blocks, vmap_area_list, workqueues, zswap_pools, alloc_tag_cttypes
struct list_head *pcpu_chunk_lists
struct maple_tree sparse_irqs
struct mem_cgroup *root_mem_cgroup
struct mem_section **mem_section
struct memblock memblock
struct mm_struct init_mm
struct mod_tree_root mod_tree
struct movable_operations zsmalloc_mops
struct net init_net
struct net_aligned_data net_aligned_data
struct percpu_counter nr_files, vm_committed_as
struct pglist_data *node_data[]
struct pid_namespace init_pid_ns
struct pipe_buf_operations anon_pipe_buf_ops
struct printk_ringbuffer *prb
struct rcu_state rcu_state
struct resource crashk_low_res, crashk_res, iomem_resource
struct rb_root vmap_area_root
struct saved_cmdlines_buffer *savedcmd
struct super_block *blockdev_superblock
struct swap_info_struct *swap_info[]
struct task_group root_task_group
struct task_struct init_task
struct time_namespace init_time_ns
struct taint_flag taint_flags[]
struct tk_data timekeeper_data[]
mempool_t integrity_buf_pool
struct {seq, timekeeper} tk_core
struct udp_table udp_table
struct uts_namespace init_uts_ns
struct vfsmount *anon_inode_mnt, *secretmem_mnt
struct vmap_node *vmap_nodes, single
struct xarray irq_desc_tree, page_pools
u64 jiffies_64, kimage_voffset
unsigned int __pgtable_l5_enabled, d_hash_shift, default_hstate_idx, nr_cpu_ids, nr_node_ids, nr_swapfiles
unsigned int nr_swapper_spaces[], nr_vmap_nodes, total_nr_irqs, vmap_zone_size
struct cea_exception_stacks *cea_exception_stacks
struct hrtimer_cpu_base hrtimer_bases
int __preempt_count
struct irq_stack *hardirq_stack_ptr
struct kernel_cpustat kernel_cpustat
struct kernel_stat kstat
struct llist_head call_single_queue
struct rq runqueues
struct softnet_data softnet_data
struct task_struct *current_task
struct tick_sched tick_cpu_sched
struct timer_base timer_bases[]
struct tss_struct cpu_tss_rw
struct vm_event_state vm_event_states
void *high_memory, *stack_pools[?], *stack_slabs[]
"""
# type, variables
_LINE = regex(r"((?:[\w ]+(?: \{[^}]*\})?) )(?=\**\w)(.*)")
# pointers, name, array
_VARIABLE = regex(r"(\**)(\w+)(\[\??\])?")


def declarations() -> Iterator[tuple[str, str, int, bool, bool]]:
    """Yield (name, type, pointers, whether it is an array, whether a pointer may stand for that) of each variable."""
    for line in _DECLARED.strip().splitlines():
        kind, _, variables = _LINE.sub(r"\1\n\2", line).partition(" \n")
        for text in variables.split(", "):
            found = _VARIABLE.fullmatch(text)
            assert found is not None, text
            stars, name, array = found.groups()
            yield name, kind, len(stars), array is not None, array == "[?]"
