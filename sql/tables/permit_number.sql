-- Low part of permit_id. Unlogged, so that drawing a number writes no WAL; cache 1, because cached
-- numbers would be handed out of order; a crash resets it, which the epoch makes up for.
create unlogged sequence pglimit.permit_number as bigint cache 1;
