// Prints each query whose page is not among the first five results in a built site:
// `node docs/search.js docs/_build/html`.
const { readFileSync } = require("fs");
const { runInNewContext } = require("vm");

const QUERIES = `
changelog: changelog
choose: arima; prophet; ets; model selection; which kernel; matern; automatic kernel selection;
    which kernel should I use; best kernel for small data; ARIMA alternative; Prophet alternative;
    kernel search
howto/ax: ax; generation strategy; AxClient; parallel trials
howto/bo_batches: pending points; failed trials; parallel evaluations; fantasies; batch Bayesian
    optimization; qNEI; pending trials; batch size; noisy measurements; objective noise
howto/bo_columns: multi-fidelity; categorical; contextual; integer parameters; fidelity; discrete
    variables; mixed integer; knowledge gradient; categorical variables
howto/bo_objectives: multi-objective; pareto; constraints; hypervolume; qnehvi; outcome
    constraints; hypervolume improvement; constrained Bayesian optimization; constrained
    optimization
howto/bo_replace: singletaskgp; thompson; trust region; turbo; high-dimensional; Thompson
    sampling; high-dimensional Bayesian optimization; warm start; acquisition function
howto/change_points: structural break; change point; level shift; regime switching; breakpoint
    detection; step change; trend break; change point detection
howto/classes: classification; poisson; svm; multiclass; student-t; robust regression; count data;
    predict_proba; Bernoulli likelihood; non-Gaussian likelihood; latent GP; imbalanced data;
    logistic regression; Student-t noise; GP classification; proportions; ordinal regression;
    probability calibration; SVC; support vector machine; outliers; missing labels; early stopping
howto/covariates: exogenous; holidays; regressors; future covariates; dynamic regression; price
    elasticity; holiday effect; temperature covariate; weather covariates; forecast with holidays;
    electricity demand
howto/csv: leap year; csv; box-cox; command line; outlier detection; time zone; daylight saving;
    decimal comma; date format; negative forecasts; percentages; command line options; time
    stamps; business days; forecast csv command line; anomaly; forecast accuracy; monthly data;
    HTML report
howto/derivatives: gradient observations; derivatives; derivative observations; gradient enhanced;
    gradient of the mean
howto/devices: gpu; cuda; threads; multiprocessing; n_jobs; Ray; mixed precision; float64; multi
    GPU; GPU support; joblib
howto/grid_kernels: kronecker; spatio-temporal; kiss-gp; kriging; geostatistics; spatial
    interpolation; weather stations; spatio-temporal data; Kronecker product; KroneckerGridGP;
    sensor network
howto/known_noise: heteroscedastic; sample weights; heteroskedastic; alpha; aleatoric uncertainty;
    measurement error; known variance; input-dependent noise
howto/many_rows: inducing points; large data; svgp; mini-batches; elbo; minibatch training; sparse
    Gaussian process; one million points; stochastic variational inference; random Fourier
    features
howto/many_series: statsforecast; panel data; sktime; forecast many SKUs; hierarchical
    forecasting; parallel forecasting; multiple time series
howto/missing_data: impute; missing values; nan; missing data imputation; NaN in targets; missing
    features
howto/networks: nuts; mcmc; fully bayesian; pyro; regularization; regularisation; L1
    regularization; sum of kernels; prior on lengthscale; custom layers; product of kernels;
    non-negative weights
howto/nonstationary: non-stationary; varying lengthscale; varying frequency; nonstationary;
    lengthscale varies; lengthscale
howto/reading: interpretability; partial dependence; sensitivity analysis; anova; main effects;
    variance decomposition; explain predictions; SHAP; trend component
howto/saving: pickle; checkpoint; load a model; save model; load trained model; serialize
howto/several_outputs: multitask; transfer learning; multi-output regression; multi-task; linear
    coregionalization; correlated outputs; task covariance; multi-output GP; shared kernel across
    tasks; LMC; linear model of coregionalization
howto/spectral_starts: spectral mixture; local optima; restarts; random seed; spectral mixture
    initialization; train with Adam; multiple restarts; spectral mixture kernel; number of
    restarts
howto/speed: profiling; compiled; slow training; why is training slow; slow first call;
    memory usage
index: citation; install; conda; BibTeX; cite; how to install; license; compiler
kernels: periodic kernel
results: model comparison; benchmark results; regret; random forest comparison
start/botorch: bayesian optimization; expected improvement; surrogate; qlogei; black-box
    optimization; maximize or minimize; hyperparameter search
start/forecast: confidence interval; credible; prediction interval; time series; backtest;
    probabilistic forecasting; forecast horizon; Mauna Loa; sample trajectories; stock market;
    short time series; retail demand; store sales; wind speed
start/grid: inpainting; image; image completion; satellite image; image restoration; hole filling;
    video; remove text from image; inpaint; image denoising; 3D data; time budget
start/model: custom kernel; gpytorch model; deep kernel; extrapolation; replace RBF kernel;
    GPyTorch tutorial; Gaussian process regression; deep kernel learning; learning rate
start/table: tabular; feature importance; scikit-learn; variable importance; string columns;
    quantile regression; categorical encoding; regression uncertainty; prediction intervals
    regression; quantile; interactions; date column
theory/forecasts: rolling origin; Wiener process; calibration
theory/grids: Toeplitz
theory/hadamard: multiple kernel learning
theory/networks: additive GP; neural architecture; universal approximation; polynomial of kernels;
    kernel composition; compositional kernel search
theory/spectral: Bochner's theorem; Yaglom
upstream: workaround; GPyTorch bug; known issues
warnings: sizewarning; warnings; out of memory; notpsderror; jitter; singular matrix;
    convergenceWarning; error message; CUDA out of memory; positive definite
`;

// Scripts of the page search.html, without a browser.
const scripts = ["_static/documentation_options", "_static/searchtools", "_static/language_data"];
const code = [...scripts, "searchindex"].map((name) =>
  readFileSync(`${process.argv[2]}/${name}.js`, "utf8"),
);
const results = runInNewContext(
  [
    "var window = globalThis",
    ...code,
    "(query) => Search._performSearch(...Search._parseQuery(query))",
  ].join(";\n"),
  {
    document: { getElementById: () => null },
    SPHINX_HIGHLIGHT_ENABLED: false,
    _: (text) => text,
    _ready() {},
  },
);

for (const line of QUERIES.trim().split(/\n(?! )/)) {
  const [page, queries] = line.split(": ");
  for (const query of queries.split(/;\s+/).map((words) => words.replace(/\s+/g, " "))) {
    const found = [...new Set(results(query).map(([document]) => document).reverse())];
    if (!found.slice(0, 5).includes(page)) {
      console.log(`The search for "${query}" finds ${found.slice(0, 5)}, not ${page}.`);
    }
  }
}
