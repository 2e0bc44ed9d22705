//! mbarrier objects.
