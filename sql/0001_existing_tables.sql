-- SPDX-License-Identifier: Apache-2.0
-- creates: existing tables
--
-- The two tables that LocalAI's front ends keep their state in. Where they exist already nothing is
-- done: they are theirs and are never altered. Where they do not, they are made with the same names
-- and types, so that a front end may join later.

CREATE TABLE IF NOT EXISTS model_load_jobs (
    tracking_key varchar(255) PRIMARY KEY,
    state varchar(16),
    owner_replica varchar(64),
    node_id varchar(36),
    node_name varchar(255),
    replica_index int,
    bytes_sent bigint,
    total_bytes bigint,
    file_index int,
    total_files int,
    started_at timestamptz,
    last_progress timestamptz,
    created_at timestamptz,
    updated_at timestamptz,
    last_error text
);

CREATE TABLE IF NOT EXISTS gallery_operations (
    id varchar(36) PRIMARY KEY,
    user_id varchar(36),
    gallery_element_name varchar(255),
    cache_key varchar(512),
    is_backend_op boolean,
    op_type varchar(32),
    status varchar(32) DEFAULT 'pending',
    progress float8,
    phase varchar(32),
    current_bytes bigint,
    total_bytes bigint,
    message text,
    error text,
    file_name varchar(512),
    total_file_size varchar(32),
    downloaded_file_size varchar(32),
    frontend_id varchar(36),
    cancellable boolean,
    created_at timestamptz,
    updated_at timestamptz
);
