-- SPDX-License-Identifier: Apache-2.0
--
-- The nodes as text, made when they are written, once a second at most, and not each time that the poll reads all of
-- them, which is five times a second: that was most of the time that reading thousands of operations took.
ALTER TABLE operation_control ADD COLUMN nodes_text text GENERATED ALWAYS AS (nodes::text) STORED;
