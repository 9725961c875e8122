#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| dmods_engine_fuzz::targets::own_types::shape(data));
