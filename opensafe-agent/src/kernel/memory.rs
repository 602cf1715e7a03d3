//! Memory that nobody uses and the C library keeps.

/// Gives back to the kernel what was freed. To be called after what takes much memory once, such as compiling a policy: the
/// GNU C library keeps most of that as long as anything above it in its heap is in use. With other C libraries it does
/// nothing.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number and gives one, lets go only of pages in which nothing is allocated, and takes the
    // allocator's own locks, so that any thread may call it at any time (malloc_trim(3), ATTRIBUTES: MT-Safe).
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
