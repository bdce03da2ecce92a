# Make counts/counts.csv, with the columns group (carparts, weeks, months), series and y, in order
# of time.
rows <- function(group, name, y) data.frame(group = group, series = name, y = as.vector(y))
data(carparts, package = "expsmooth")
parts <- lapply(colnames(carparts), function(n) rows("carparts", n, carparts[, n]))
data(campy, ecoli, ehec, influenza, measles, package = "tscount")
data(k1, m1, m3, m4, m5, n1, n2, q1_nrwh, s1, s2, s3, h1_nrwrp, hepatitisA, salmonella.agona,
     shadar, influMen, meningo.age, package = "surveillance")
of <- function(n, y = get(n)$observed) lapply(seq_len(NCOL(y)), function(j)
  rows(ifelse(n %in% c("campy", "meningo.age"), "months", "weeks"), paste0(n, ".", j),
       tail(as.matrix(y)[, j], 260)))
weeks <- lapply(c("ecoli", "ehec", "influenza", "measles"), function(n) of(n, get(n)[, 3]))
more <- lapply(c("k1", "m1", "m3", "m4", "m5", "n1", "n2", "q1_nrwh", "s1", "s2", "s3",
                 "h1_nrwrp", "hepatitisA", "salmonella.agona", "shadar", "influMen",
                 "meningo.age"), of)
all <- do.call(rbind, c(parts, of("campy", campy), unlist(c(weeks, more), recursive = FALSE)))
write.csv(all, "counts.csv", row.names = FALSE)
