// SPDX-License-Identifier: GPL-2.0-only
//! The virtual machines of this host: who they are ([`discover`]), what their threads do ([`roles`]), who waits
//! ([`counters`], [`view`]), what they are for ([`class`], [`classes`]); which of its
//! cores are fast ([`cores`]).
//!
//! Everything is read from /proc and /sys, or from a recorded tree of them ([`root`], [`fixture`]); nothing is changed.
pub mod btf;
pub mod cgroup;
pub mod class;
pub mod classes;
pub mod cores;
pub mod counters;
pub mod debugfs;
pub mod dir;
pub mod discover;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod files;
pub mod fixture;
pub mod machine;
pub mod model;
pub mod name;
pub mod network;
pub mod pace;
pub mod pidfd;
pub mod places;
pub mod procfile;
pub mod profile;
pub mod qmp;
pub mod record;
pub mod roles;
pub mod root;
pub mod threads;
pub mod time;
pub mod topology;
pub mod trace;
pub mod view;
