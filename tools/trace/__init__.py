"""The page-trace inspector: `matwin trace …` on a file that a store wrote with ``trace=…``.

    events     a trace as arrays, and the walks over pairs of pages that it holds
    text       tables, bars and names for a terminal
    summary    what was read, hit, written and given up, in all and over time
    pages      the life of each page
    peek       a page file read with plain reads, so that looking at it changes nothing
    dump       one page, bytes beside their meaning
    matrix     the pair matrix of a walk, with its loads
    caches     misses of a sequence of page uses under LRU, FIFO and the best replacement
    replay     what other budgets, modes and replacements would have cost
    diff       what differs between two traces
    html       one page for a browser, that moves

A trace may come from anywhere: names are shown with control characters escaped, and what makes no
sense is one line that names the file and the event.
"""
